"""The series of a route or an endpoint in the metrics: they go with it, and what comes later with its name begins at 0."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamer.config.models import Config, ReportRateConfig
from streamer.delivery.lifecycle.reload import Reload
from streamer.features.api.metrics import Exposition
from streamer.transports.errors import Malformed, MalformedPacketError, PermanentError, Unwanted
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.constants import with_constants
from tests.flow.harness import CLOUD_APP, RouterHarness, configuration, three_networks

PHONE_APP = UUri("phone1", 0xF, 1, 0)
PHONE_TOPIC = UUri("phone1", 0xF, 1, 0x8000)
STRANGER_TOPIC = UUri("stranger", 0xF, 1, 0x8000)
BOTH_WAYS = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]
NONE = with_constants(ReportRateConfig, messages=0.001, burst_s=0.1)  # next to no reports, so that some are suppressed


def config(*routes: dict[str, Any], phone: bool = True) -> Config:
    made = three_networks if phone else configuration
    return made(routes=[*BOTH_WAYS, *routes], dead_letter={"report_rate": NONE})


def samples(harness: RouterHarness, name: str) -> dict[str, float]:
    """Every sample of which a label names a route or an endpoint that has this text in its name."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(Exposition(harness.router).text().decode())
        for sample in family.samples
        if any(name in value for key, value in sample.labels.items() if key in ("route", "ingress", "egress", "endpoint"))
    }


def refused(harness: RouterHarness, number: int) -> None:
    """Have so many messages to the phone refused for ever: dead letters of their route."""
    harness.transports["phone"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
    for each in range(number):
        harness.arrive("cloud", harness.notify(b"%d" % each, sink=PHONE_APP, source=CLOUD_APP._replace(resource=0x9000)))
    harness.transports["phone"].refuse = lambda message: None


def dead_letters(harness: RouterHarness, route: str) -> float:
    found = samples(harness, route)
    return sum(value for name, value in found.items() if name.startswith("ustreamer_dead_letters_total"))


TO_PHONE = {"from": "cloud", "to": "phone", "name": "calls"}


async def test_a_removed_route_takes_its_dead_letters_with_it_and_its_name_begins_at_0() -> None:
    async with RouterHarness(config(TO_PHONE)) as harness:
        refused(harness, 1)
        assert dead_letters(harness, "calls") == 1
        await Reload(harness.router, config()).run()
        harness.pass_time(50)
        assert samples(harness, "calls") == {}
        harness.ended.update({key: number for key, number in harness.ledger.counted.items() if key[0] == "calls"})
        await Reload(harness.router, config(TO_PHONE)).run()
        assert set(samples(harness, "calls").values()) == {0}
        assert dead_letters(harness, "calls") == 0
        refused(harness, 2)
        assert dead_letters(harness, "calls") == 2


async def test_under_another_name_a_route_begins_at_0() -> None:
    async with RouterHarness(config(TO_PHONE)) as harness:
        refused(harness, 1)
        await Reload(harness.router, config(TO_PHONE | {"name": "rings"})).run()
        assert samples(harness, "calls") == {}
        assert set(samples(harness, "rings").values()) == {0}
        refused(harness, 1)
        assert dead_letters(harness, "rings") == 1


async def test_the_name_of_a_route_that_still_has_messages_may_be_used_for_another_one() -> None:
    async with RouterHarness(config(TO_PHONE)) as harness:
        refused(harness, 1)
        harness.transports["phone"].is_withholding = True
        harness.arrive("cloud", harness.notify(b"late", sink=PHONE_APP, source=CLOUD_APP._replace(resource=0x9000)))
        await Reload(harness.router, config({"from": "vehicle", "to": "phone", "name": "calls"})).run()
        assert dead_letters(harness, "calls") == 1  # of the one that is about to go
        harness.transports["phone"].release_withheld()
        harness.pass_time(50)
        assert dead_letters(harness, "calls") == 0


@pytest.mark.parametrize("again", [False, True])
async def test_a_removed_endpoint_takes_all_its_series_with_it_and_its_name_begins_at_0(again: bool) -> None:
    back = {"from": "phone", "to": "cloud"}
    async with RouterHarness(config(TO_PHONE, back)) as harness:
        refused(harness, 1)
        events = harness.transports["phone"].context.events
        events.packets_received(2)
        events.packet_malformed(MalformedPacketError(Malformed.HEADER, "not a message"))
        events.packets_unwanted(Unwanted.NO_LISTENER, 1)
        for number in range(3):
            harness.arrive("phone", harness.notify(b"%d" % number, sink=CLOUD_APP, source=STRANGER_TOPIC))
            harness.arrive("phone", harness.notify(b"%d" % number, sink=CLOUD_APP, source=PHONE_TOPIC))
        before = samples(harness, "phone")
        assert {name.partition("[")[0] for name, value in before.items() if value} >= {
            "ustreamer_received_packets_total",
            "ustreamer_malformed_packets_total",
            "ustreamer_unwanted_packets_total",
            "ustreamer_accepted_messages_total",
            "ustreamer_outcomes_total",
        }
        await Reload(harness.router, config(phone=False)).run()
        harness.pass_time(50)
        assert samples(harness, "phone") == samples(harness, "calls") == {}
        if again:
            await Reload(harness.router, config(TO_PHONE, back), {"phone": harness.other_transport("phone")}).run()
            gauges = ("ustreamer_endpoint_up", "ustreamer_endpoint_state_since_timestamp_seconds")
            counted = {name: value for name, value in samples(harness, "phone").items() if not name.startswith(gauges)}
            assert set(counted.values()) == {0}
