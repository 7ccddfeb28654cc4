"""What the benchmark computes from its measurements, and how it prints it."""

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import load
from tests.bench.crossings import FULL, Plan, Runs
from tests.bench.drawing import draw, number
from tests.bench.figures import (
    Goal,
    differences,
    in_calmest,
    markdown,
    percentile,
    plain,
    quotients,
    slope_per_minute,
    spread,
    text,
)
from tests.bench.run import Figures, account, lag_p99_ms
from tests.bench.soak import Phase


def test_rounds_are_compared_one_by_one() -> None:
    assert quotients([2, 9], [1, 3]) == [2, 3]
    assert differences([2, 9], [1, 3]) == [1, 6]


def test_rounds_that_are_missing_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        quotients([1, 2], [1])


def test_the_calmest_round_is_that_of_the_lowest_base() -> None:
    assert in_calmest([5.0, 0.3, 7.0], [40.0, 2.1, 9.0]) == 0.3


def test_slope_is_that_of_the_second_half() -> None:
    seconds = list(range(0, 121, 10))
    assert slope_per_minute(seconds, [*range(100, 1300, 200), *[50 + second / 60 for second in seconds[6:]]]) == (
        pytest.approx(1.0)
    )
    assert slope_per_minute(seconds, [7.0] * len(seconds)) == 0


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0.00"), (0.0123, "0.012"), (-0.02, "-0.020"), (1.234, "1.23"), (12.34, "12.3"), (41800, "41 800")],
)
def test_numbers_have_three_digits(value: float, said: str) -> None:
    assert text(value) == said


def test_median_and_range() -> None:
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00–3.00)"
    assert spread([3.0]) == "3.00"


@pytest.mark.parametrize(
    ("values", "target", "is_least", "reached"),
    [
        ([1.0, 1.4, 9.0], 1.4, False, True),
        ([1.5, 1.4, 9.0], 1.4, False, False),
        ([0.9, 0.85, 0.1], 0.85, True, True),
        ([0.8], 0.85, True, False),
        ([0.8], None, False, None),
    ],
)
def test_the_median_decides(values: list[float], target: float | None, is_least: bool, reached: bool | None) -> None:
    assert Goal("", values, target=target, is_least=is_least).is_reached is reached


def test_line_of_a_target() -> None:
    goal = Goal("throughput", [0.8, 0.9, 0.7], target=0.85, is_least=True, remark="; so far")
    assert goal.cells() == ["throughput", "0.80 (0.70–0.90) ×; so far", "≥ 0.85 ×", "not reached"]
    assert Goal("start", [1.0], "s").cells() == ["start", "1.00 s", "", ""]


def test_tables() -> None:
    assert list(markdown(["a", "b"], [["1", "22"]])) == ["| a | b |", "|---|---|", "| 1 | 22 |"]
    assert list(plain(["a", "b"], [["1", ""], ["333", "4"]])) == ["a    b", "1", "333  4"]


def test_lag_of_a_phase_is_that_between_two_readings() -> None:
    before = {0.001: 90.0, 0.01: 100.0, float("inf"): 100.0}
    after = {0.001: 90.0, 0.01: 200.0, float("inf"): 200.0}
    assert lag_p99_ms(before, after) == 10.0
    assert lag_p99_ms({}, {0.001: 99.0, 0.01: 100.0, float("inf"): 100.0}) == 1.0


def figures(cpu_us: float, rate: float, p99_ms: float) -> Figures:
    return Figures(rate, cpu_us, 0.5, p99_ms)


def test_targets_of_a_direction() -> None:
    runs = Runs("up")
    for rate in (500.0, 1000.0, FULL):
        runs.figures["raw", rate] = [figures(10, 1000, 2.0), figures(20, 500, 9.0)]
        runs.figures["traced", rate] = [figures(19, 800, 2.3), figures(38, 400, 11.0)]
    goals = {goal.name: goal for goal in runs.goals()}
    assert {name: goal.is_reached for name, goal in goals.items()} == {
        "Zenoh → MQTT: CPU per message at full load, streamer, pure": True,
        "Zenoh → MQTT: throughput, streamer, pure": None,
        "Zenoh → MQTT: CPU per message at 500/s, streamer, pure": False,
        "Zenoh → MQTT: added p99 at 500/s, streamer, pure": False,
        "Zenoh → MQTT: added p99 at 1000/s, streamer, pure": False,
    }
    added = goals["Zenoh → MQTT: added p99 at 500/s, streamer, pure"]
    assert added.values == pytest.approx([0.3, 2.0])
    assert added.remark == "; 0.30 in the calmest round"


def test_lines_of_a_direction_stand_by_load() -> None:
    runs = Runs("across")
    for subject in ("mosquitto", "traced"):
        for rate in (500.0, FULL):
            runs.figures[subject, rate] = [figures(10, 1000, 2.0)]
    assert [(row[1], row[2], row[5]) for row in runs.rows()] == [
        ("500/s", "mosquitto's bridge", ""),
        ("500/s", "streamer, pure", "1.00"),
        ("full", "mosquitto's bridge", ""),
        ("full", "streamer, pure", "1.00"),
    ]


def test_phase_of_the_soak() -> None:
    phase = Phase("new flows", [0, 20, 40, 60], [100, 100, 101, 102], 3.5, 5, 1.0)
    assert phase.cells() == ["new flows", "100 → 102", "3.00", "3.50", "5.00", "100 %"]


def test_flows_of_the_load_differ() -> None:
    topics = {load.source("veh1", number) for number in range(100_000)}
    assert len(topics) == 100_000
    assert not any(topic.has_wildcard for topic in topics)
    assert Plan().rounds >= 3


def test_percentiles() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile(range(100), 99) == 99
    assert percentile([], 99) == 0.0


@pytest.mark.parametrize(("value", "said"), [(0, "0"), (200, "200"), (16_384, "16.4k"), (100_000, "100k"), (1e6, "1M")])
def test_numbers_at_an_axis_are_short(value: float, said: str) -> None:
    assert number(value) == said


def test_drawing_is_the_same_for_the_same_curves(tmp_path: Path) -> None:
    curves = {"pure": [(0, 10.0), (10, 12.0), (1000, 100.0)], "compiled": [(0, 5.0), (10, 6.0), (1000, 7.0)]}
    pictures = []
    for folder in ("a", "b"):
        draw(tmp_path / folder / "x.svg", "CPU: flows", ("flows", "CPU"), curves)
        pictures.append((tmp_path / folder / "x.svg").read_text())
    assert pictures[0] == pictures[1]
    for text_of in ("CPU: flows", "pure", "compiled", "1k"):
        assert f">{text_of}</text>" in pictures[0]


def test_account_of_a_streamer_is_that_of_all_its_routes() -> None:
    text = """# HELP ustreamer_outcomes_total of messages
ustreamer_received_messages_total{endpoint="a",transport="zenoh"} 7.0
ustreamer_received_messages_total{endpoint="b",transport="mqtt5"} 2.0
ustreamer_outcomes_total{code="OK",egress="b",ingress="a",outcome="delivered",route="a-b"} 4.0
ustreamer_outcomes_total{code="OK",egress="a",ingress="b",outcome="delivered",route="b-a"} 2.0
ustreamer_outcomes_total{code="OK",egress="b",ingress="a",outcome="expired",route="a-b"} 1.0
ustreamer_queue_messages{egress="b",ingress="a",route="a-b"} 2.0
"""
    assert account(text) == {"received": 9, "delivered": 6, "expired": 1, "waiting": 2}


class _OnePhase:
    """A standard input with one phase of one message."""

    def __init__(self) -> None:
        self._lines = ['{"count": 1}\n']

    def readline(self) -> str:
        if not self._lines:
            raise EOFError
        return self._lines.pop()


async def test_receiver_that_has_said_that_a_phase_has_begun_counts_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    peers: list[load.MqttPeer] = []
    results = []

    async def connected(port: int, arrivals: load.Arrivals, topics: str) -> load.MqttPeer:
        peers.append(load.MqttPeer(arrivals, topics))
        return peers[0]

    def say(**values: Any) -> None:
        if "begun" in values:
            assert peers[0].arrivals is not None
            peers[0].arrivals.add(bytes(8))  # the sender is quick
        else:
            results.append(values["arrived"])

    monkeypatch.setattr(sys, "stdin", _OnePhase())
    monkeypatch.setattr(load, "_connected", connected)
    monkeypatch.setattr(load, "say", say)
    with pytest.raises(EOFError):
        await load.mqtt_receive(argparse.Namespace(port=0, topics="", mark="", progress=None))
    assert results == [1]
