"""Every dead letter, refusal and held flow is in the log: what, whose, why, and how many more there were."""

import logging
from typing import Any

import pytest

from streamer.delivery.lifecycle.reload import Reload
from streamer.delivery.outcomes.flow_log import CHANGES, FLOWS, LINES
from streamer.logs import audit
from streamer.transports.base import Presence
from streamer.transports.errors import Malformed, MalformedPacketError, PermanentError, RefusedError
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id
from tests.flow.harness import (
    CLIMATE,
    CLOUD_APP,
    CLOUD_METHOD,
    SPEED,
    VEHICLE_APP,
    RouterHarness,
    bad_request,
    configuration,
)
from tests.flow.pausing import EVERYTHING, pause, resume

STRANGER = UUri("elsewhere", 0xA8000, 2, 0x8A50)
WINDOW_MS = 10_000

pytestmark = pytest.mark.asyncio


class Said:
    """The lines about flows since the last call, each as its event and fields."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "ustreamer.flows")
        self._caplog = caplog

    def __call__(self, event: str = "") -> list[dict[str, Any]]:
        found = []
        for record in self._caplog.records:
            if record.name == "ustreamer.flows":
                name, *fields = str(record.msg).split(" ")
                args = record.args if isinstance(record.args, tuple) else ()
                values = dict(zip((field.partition("=")[0] for field in fields), args, strict=True))
                found.append({"event": name, **values, "level": record.levelname, "left_out": record.__dict__["left_out"]})
        self._caplog.clear()
        return [line for line in found if line["event"].startswith(event)]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    return Said(caplog)


# messages


async def test_a_dead_letter_has_a_line_with_what_is_needed_to_find_it(said: Said) -> None:
    config = configuration(queue_policy={"retry": {"attempts": 3, "initial_ms": 1, "max_ms": 1}})
    async with RouterHarness(config) as router:
        router.transports["cloud"].refuse = lambda message: RefusedError(UCode.INTERNAL, "no\nroom")
        message = router.notify(b"a secret")
        router.arrive("vehicle", message)
        for _ in range(5):
            router.pass_time(50)
        assert router.dead_letters("vehicle")
    (line,) = said()
    assert line == {
        "event": "message_dead_lettered",
        "outcome": "dead_lettered",
        "code": "INTERNAL",
        "reason": "no\nroom",
        "source": str(SPEED),
        "sink": str(CLOUD_APP),
        "id": format_id(message.id),
        "route": "vehicle-cloud",
        "ingress": "vehicle",
        "egress": "cloud",
        "attempts": 3,
        "level": "WARNING",
        "left_out": 0,
    }


async def test_no_payload_and_no_token_is_in_a_line(said: Said, caplog: pytest.LogCaptureFixture) -> None:
    async with RouterHarness() as router:
        router.transports["vehicle"].refuse = lambda message: PermanentError(UCode.INTERNAL, "no")
        router.arrive("cloud", router.ask(payload=b"a secret", token="a secret"))
        router.arrive("cloud", bad_request(router.ask(payload=b"a secret", token="a secret")))
        assert "secret" not in caplog.text
        assert [line["event"] for line in said()] == ["message_dead_lettered", "message_refused"]


REFUSALS = [
    pytest.param({"source": STRANGER}, "UNAUTHENTICATED", "none", id="source-elsewhere"),
    pytest.param({"sink": UUri("veh2", 1, 1, 0), "is_alone": True}, "PERMISSION_DENIED", "none", id="no-route"),
    pytest.param({"ttl": 5, "is_late": True}, "DEADLINE_EXCEEDED", "none", id="expired"),
    pytest.param({"is_invalid": True}, "INVALID_ARGUMENT", "none", id="invalid"),
    pytest.param({"is_full": True}, "RESOURCE_EXHAUSTED", "vehicle-cloud", id="queue-full"),
]


@pytest.mark.parametrize(("case", "code", "route"), REFUSALS)
async def test_every_refusal_has_a_line(case: dict[str, Any], code: str, route: str, said: Said) -> None:
    changes: dict[str, Any] = {"queue_policy": {"queue": {"messages": 1, "on_full": "reject"}}}
    if case.pop("is_alone", False):
        changes["routes"] = [{"from": "cloud", "to": "vehicle"}]
    async with RouterHarness(configuration(**changes)) as router:
        is_late = case.pop("is_late", False)
        if case.pop("is_full", False):
            router.transports["cloud"].is_withholding = True
            router.arrive("vehicle", router.notify())
        if case.pop("is_invalid", False):
            message = bad_request(router.ask(VEHICLE_APP, CLOUD_METHOD))
        else:
            message = router.notify(**case)
        router.clock.advance(1000 if is_late else 0)
        router.arrive("vehicle", message)
    (line,) = said()
    assert (line["event"], line["code"], line["route"], line["ingress"]) == ("message_refused", code, route, "vehicle")
    assert (line["id"], line["source"], line["attempts"]) == (format_id(message.id), str(message.attributes.source), 0)
    assert line["sink"] == str(message.attributes.sink)
    assert line["reason"]


async def test_a_message_that_expires_in_its_queue_is_a_dead_letter(said: Said) -> None:
    async with RouterHarness() as router:
        router.transports["cloud"].lose_link()
        router.arrive("vehicle", router.notify(ttl=100))
        router.pass_time(1000)
    (line,) = said()
    assert (line["event"], line["outcome"], line["egress"]) == ("message_dead_lettered", "expired", "cloud")
    assert line["reason"] == "its TTL passed while the link to cloud was down"


async def test_what_is_delivered_and_its_copies_have_no_line(said: Said) -> None:
    async with RouterHarness() as router:
        message = router.notify()
        router.arrive("vehicle", message)
        router.arrive("vehicle", message)
        assert router.outcomes("none") == {"duplicate": 1}
    assert said() == []


async def test_a_flow_has_one_line_in_a_window_and_then_one_that_counts_the_others(said: Said) -> None:
    async with RouterHarness() as router:
        messages = [router.notify(source=STRANGER) for _ in range(1000)]
        router.arrive("vehicle", *messages)
        (first,) = said()
        assert (first["id"], first["left_out"]) == (format_id(messages[0].id), 0)
        router.pass_time(WINDOW_MS - 50)
        assert said() == []
        router.pass_time(50)
        (last,) = said()
        assert (last["id"], last["left_out"]) == (format_id(messages[-1].id), 998)
        router.pass_time(WINDOW_MS)
        assert said() == []


async def test_flows_do_not_use_up_the_lines_of_each_other(said: Said) -> None:
    async with RouterHarness() as router:
        router.arrive("vehicle", *[router.notify(source=STRANGER) for _ in range(1000)])
        router.arrive("vehicle", router.notify(source=STRANGER._replace(resource=0x9000)))
        router.arrive("vehicle", router.notify(source=STRANGER, sink=CLOUD_APP._replace(version=2)))
        assert len(said()) == 3


async def test_invented_flows_are_bounded_and_hide_neither_dead_letters_nor_other_endpoints(said: Said) -> None:
    async with RouterHarness() as router:
        for number in range(10 * LINES):
            router.arrive("vehicle", router.notify(source=UUri(f"evil{number}", 1, 1, 0x8000)))
        assert len(said()) == LINES
        router.transports["cloud"].refuse = lambda message: PermanentError(UCode.INTERNAL, "no")
        router.arrive("vehicle", router.notify())
        router.arrive("cloud", router.ask(source=UUri("veh1", 0xC0, 1, 0)))
        assert [line["event"] for line in said()] == ["message_dead_lettered", "message_refused"]
        router.pass_time(WINDOW_MS)
        after = said()
        assert len(after) == FLOWS + 1
        assert [(line["of"], line["endpoint"], line["count"]) for line in said_of(after, "flows_left_out")] == [
            ("message_refused", "vehicle", 10 * LINES - LINES - FLOWS)
        ]


def said_of(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


async def test_what_permissions_deny_is_in_the_audit_log_and_only_counted_here(
    said: Said, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_denials", audit.denials())  # those of other tests may have used up the lines
    async with RouterHarness(configuration(permissions={"endpoints": {"cloud": {"rules": []}}})) as router:
        router.arrive("vehicle", *[router.notify() for _ in range(10)])
        audited = [record for record in caplog.records if record.name == "streamer.audit"]
        assert len([record for record in audited if record.msg.startswith("denied ")]) == 1  # others have been denied before
        assert said() == []
        router.pass_time(WINDOW_MS)
        (line,) = said()
        assert (line["event"], line["code"], line["left_out"]) == ("message_refused", "PERMISSION_DENIED", 9)


async def test_nothing_is_lost_at_the_end(said: Said) -> None:
    async with RouterHarness() as router:
        router.arrive("vehicle", *[router.notify(source=STRANGER) for _ in range(3)])
        router.router.settler.log.tick(is_end=True)
    assert [line["left_out"] for line in said()] == [0, 1]


async def test_long_reasons_are_cut(said: Said) -> None:
    async with RouterHarness() as router:
        router.transports["cloud"].refuse = lambda message: PermanentError(UCode.INTERNAL, "x" * 10_000)
        router.arrive("vehicle", router.notify())
    (line,) = said()
    assert len(line["reason"]) == 257


async def test_a_longer_time_between_lines_is_used_after_a_reload(said: Said) -> None:
    async with RouterHarness() as router:
        await Reload(router.router, configuration(log={"repeat_s": 60})).run()
        router.arrive("vehicle", *[router.notify(source=STRANGER) for _ in range(3)])
        router.pass_time(WINDOW_MS)
        assert len(said()) == 1
        router.pass_time(60_000 - WINDOW_MS)
        assert len(said()) == 1


# packets


async def test_packets_that_cannot_be_read_have_a_line_for_each_reason(said: Said) -> None:
    async with RouterHarness() as router:
        log = router.router.settler.log
        for number in range(100):
            log.malformed("cloud", MalformedPacketError(Malformed.URI, f"packet {number}"))
            log.malformed("cloud", MalformedPacketError(Malformed.SIZE, "x" * 10_000))
        log.malformed("vehicle", MalformedPacketError(Malformed.URI, "other"))
        lines = said("malformed_packet")
        assert [(line["endpoint"], line["reason"]) for line in lines] == [
            ("cloud", "uri"),
            ("cloud", "size"),
            ("vehicle", "uri"),
        ]
        assert len(lines[1]["detail"]) == 257
        router.pass_time(WINDOW_MS)
        last, *_ = said("malformed_packet")
        assert (last["detail"], last["left_out"]) == ("uri: packet 99", 98)


# flows


async def test_a_flow_that_is_paused_has_a_line_and_another_one_when_it_goes_on(said: Said) -> None:
    async with RouterHarness() as router:
        router.arrive("vehicle", router.notify())
        pause(router.router, SPEED)
        resume(router.router, SPEED)
    expected = {
        "endpoint": "cloud",
        "route": "vehicle-cloud",
        "source": str(SPEED),
        "sink": str(CLOUD_APP),
        "reason": "paused",
        "waiting": 0,
        "level": "INFO",
        "left_out": 0,
    }
    assert said() == [{"event": "flow_held", **expected}, {"event": "flow_released", **expected}]


async def test_a_flow_that_comes_while_it_is_paused_has_a_line(said: Said) -> None:
    async with RouterHarness() as router:
        pause(router.router, SPEED)
        router.arrive("vehicle", router.notify(), router.notify())
        pause(router.router, EVERYTHING)
    assert [(line["event"], line["source"]) for line in said()] == [("flow_held", str(SPEED))]


@pytest.mark.parametrize("last", ["flow_held", "flow_released"])
async def test_of_a_flow_that_is_paused_and_resumed_all_the_time_the_last_word_is_true(last: str, said: Said) -> None:
    async with RouterHarness() as router:
        router.arrive("vehicle", router.notify())
        for _ in range(100):
            pause(router.router, SPEED)
            resume(router.router, SPEED)
        if last == "flow_held":
            pause(router.router, SPEED)
        assert len(said()) == CHANGES
        router.pass_time(WINDOW_MS)
        (line,) = said()
        assert line["event"] == last


async def test_a_flow_without_a_listener_is_held_and_released(said: Said) -> None:
    async with RouterHarness(unconfirmed_s=15) as router:
        router.arrive("cloud", router.ask())
        vehicle = router.transports["vehicle"]
        vehicle.set_presence(CLOUD_APP, CLIMATE, Presence.UNKNOWN)
        vehicle.set_presence(CLOUD_APP, CLIMATE, Presence.PRESENT)
        assert said() == []
        vehicle.set_presence(CLOUD_APP, CLIMATE, Presence.ABSENT)
        vehicle.set_presence(CLOUD_APP, CLIMATE, Presence.ABSENT)
        vehicle.set_presence(CLOUD_APP, CLIMATE, Presence.PRESENT)
    assert [(line["event"], line["reason"], line["endpoint"]) for line in said()] == [
        ("flow_held", "nobody listens", "vehicle"),
        ("flow_released", "nobody listens", "vehicle"),
    ]


async def test_a_publish_that_nobody_listens_to_is_not_held(said: Said) -> None:
    async with RouterHarness(unconfirmed_s=15, config=configuration()) as router:
        topic = UUri("cloud", 0xC0, 1, 0x9000)
        router.transports["vehicle"].set_presence(topic, None, Presence.ABSENT)
        router.arrive("cloud", *[router.speed(source=topic) for _ in range(3)])
        (line,) = said()
        assert (line["event"], line["reason"], line["source"]) == ("unwanted_packets", "no_listener", str(topic))
        router.pass_time(WINDOW_MS)
        assert [line["left_out"] for line in said()] == [1]


# endpoints


async def test_an_endpoint_that_is_asked_to_pause_and_goes_on_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ustreamer.ingress")
    config = configuration(queue_policy={"queue": {"messages": 1}})
    async with RouterHarness(config) as router:
        router.transports["cloud"].is_withholding = True
        router.arrive("vehicle", *[router.notify() for _ in range(1002)])
        assert [record.getMessage().rpartition(" ")[0] for record in caplog.records] == [
            "receiving_paused endpoint=vehicle backlog=1001"
        ]
        caplog.clear()
        router.transports["cloud"].is_withholding = False
        router.transports["cloud"].release_withheld()
        router.pass_time(50)
    (record,) = caplog.records
    assert record.getMessage().startswith("receiving_resumed endpoint=vehicle backlog=")
    assert record.__dict__["state"] == ("receiving vehicle", "resumed")
