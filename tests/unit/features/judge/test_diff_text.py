"""Consequences in words."""

import pytest

from streamer.config.models import Config
from streamer.features.flow import TYPES, Flow
from streamer.features.judge.diff import Comparison, Side
from streamer.features.judge.diff_text import consequences_lines, described, losses, weight
from streamer.features.judge.judge import Known
from streamer.routing.interest import Interest
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import RoutingTable
from streamer.uprotocol.uri import UUri
from tests.configurations import config_of, endpoint_of


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (1_200_000, "1.2 million messages a day"),
        (999_600, "1.0 million messages a day"),
        (999_400, "999 400 messages a day"),
        (123_456_789, "123 million messages a day"),
        (4_285_714_285, "4.3 billion messages a day"),
        (12_345.6, "12 346 messages a day"),
        (10, "10 messages a day"),
        (1, "1 message a day"),
        (1.25, "1.2 messages a day"),
        (1 / 7, "0.14 messages a day"),
    ],
)
def test_a_weight_has_the_digits_that_count(messages: float, text: str) -> None:
    assert weight(messages) == text


def side(publish: list[str]) -> Side:
    config = Config.model_validate(
        config_of(
            {"vehicle": endpoint_of("memory", "veh1"), "cloud": endpoint_of("memory", "*")},
            [{"from": "vehicle", "to": "cloud", "publish": publish}],
        )
    )
    return Side(config, Known(RoutingTable.from_config(config, config.addressed), Interest(), PauseRules()))


def flow(number: int, messages_per_day: float) -> Flow:
    return Flow(TYPES["publish"], UUri("veh1", 0xA, 1, 0x8000 + number), None, "vehicle", messages_per_day=messages_per_day)


def test_a_loss_is_one_line_with_its_heaviest_flow_and_a_gain_is_none() -> None:
    before, after = side(["//veh1/A/1/FFFF"]), side([])
    lost = Comparison(before, after)
    for number in range(7):
        lost.add(flow(number, number))
    assert list(losses(lost)) == [
        "7 flows, 21 messages a day, would no longer go anywhere: no route forwards it from vehicle, "
        "such as publish //veh1/A/1/8006 from vehicle, CS1"
    ]
    gained = Comparison(after, before)
    gained.add(flow(1, 1))
    assert list(losses(gained)) == []
    assert "would now go somewhere: to cloud" in "\n".join(consequences_lines(gained, is_real=True))


def test_a_flow_without_messages_that_were_counted_has_no_weight() -> None:
    comparison = Comparison(side(["//veh1/A/1/FFFF"]), side([]))
    comparison.add(flow(1, 0))
    lines = list(consequences_lines(comparison, is_real=False))
    assert lines[1] == "1 made-up flow would no longer go anywhere: no route forwards it from vehicle"
    assert lines[2] == "  publish //veh1/A/1/8001 from vehicle, CS1"


def test_an_identity_is_quoted() -> None:
    assert described(flow(1, 0)._replace(identity="a\nb")) == "publish //veh1/A/1/8001 from vehicle as 'a\\nb', CS1"
