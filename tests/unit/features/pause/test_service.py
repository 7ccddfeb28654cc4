"""The pause service on a real file: over RPC, before and after a restart, when the disk fails."""

import asyncio
import logging
from pathlib import Path

import pytest
from google.protobuf.message import Message

from streamer.config.metrics import ControlConfig
from streamer.features.host.access import Access, Caller
from streamer.features.pause.service import FETCH, PAUSE, RESUME, PausedRule, PauseService
from streamer.routing.pause_rules import MAX_RULES, PauseRule
from streamer.uprotocol.message import UPayloadFormat
from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from streamer.uprotocol.protobuf import uri_from_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from tests.clock import FakeClock
from tests.constants import with_constants
from tests.hosted import StateOn
from tests.unit.features.host.fake_router import FakeRouter
from tests.unit.features.pause.harness import (
    ACCESS,
    BY,
    CALLER,
    CLOUD_APP,
    DOORS,
    GATEWAY,
    SPEED,
    STRANGER,
    PauseHarness,
    failure,
    on_disk,
    pause_request,
    resume_request,
)


async def test_pause_and_resume_are_applied_and_answered() -> None:
    harness = PauseHarness()
    answer = await harness.ask(PAUSE, pause_request(SPEED, CLOUD_APP))
    assert answer.attributes.commstatus is None
    assert answer.attributes.payload_format is UPayloadFormat.PROTOBUF
    assert ustreamer.StopDispatchResponse.FromString(answer.payload or b"").changed
    assert harness.router.applied[-1] == (PauseRule(SPEED, CLOUD_APP),)
    answer = await harness.ask(RESUME, resume_request(SPEED, CLOUD_APP))
    assert answer.attributes.commstatus is None
    assert harness.router.applied[-1] == ()


async def test_pausing_twice_is_answered_with_unchanged() -> None:
    harness = PauseHarness()
    await harness.ask(PAUSE, pause_request(SPEED))
    answer = await harness.ask(PAUSE, pause_request(SPEED))
    assert answer.attributes.commstatus is None
    assert not ustreamer.StopDispatchResponse.FromString(answer.payload or b"").changed
    assert harness.router.pause_rules.rules == (PauseRule(SPEED),)


async def test_pause_is_answered_only_once_the_rule_is_on_disk(tmp_path: Path) -> None:
    harness = PauseHarness(tmp_path / "state.db")
    harness.state.gate = asyncio.Event()
    asking = asyncio.create_task(harness.ask(PAUSE, pause_request(SPEED)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (harness.core.said, harness.router.pause_rules.rules, on_disk(tmp_path / "state.db")) == ([], (), [])
    harness.state.gate.set()
    await asking
    assert on_disk(tmp_path / "state.db") == [PauseRule(SPEED)]


async def test_rules_are_restored_in_order_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    rules = [
        PauseRule(DOORS),
        PauseRule(SPEED, CLOUD_APP),
        PauseRule(SPEED),
        PauseRule.parse("//*/FFFFFFFF/FF/FFFF", "//cloud/FFFF0001/FF/0"),
    ]
    first = PauseHarness(path)
    for rule in rules:
        await first.service.pause(rule, BY)
    await first.service.resume(rules[2], BY)
    first.state.close()
    second = PauseHarness(path)
    assert second.router.pause_rules.rules == (rules[0], rules[1], rules[3])
    assert second.router.applied == [second.router.pause_rules.rules]
    second.state.close()


async def test_a_rule_that_cannot_be_read_does_not_affect_the_others(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first = PauseHarness(path)
    await first.service.pause(PauseRule(SPEED), BY)
    await first.state.write([("INSERT INTO dispatch_stops (source, sink) VALUES (?, ?)", ("nonsense", ""))])
    await first.service.pause(PauseRule(DOORS), BY)
    first.state.close()
    assert PauseHarness(path).router.pause_rules.rules == (PauseRule(SPEED), PauseRule(DOORS))


async def test_resume_of_what_is_not_paused_is_not_found() -> None:
    harness = PauseHarness()
    await harness.service.pause(PauseRule(SPEED, CLOUD_APP), BY)
    text = failure(await harness.ask(RESUME, resume_request(SPEED)), UCode.NOT_FOUND)
    assert str(SPEED) in text
    assert harness.router.pause_rules.rules == (PauseRule(SPEED, CLOUD_APP),)


async def test_a_failing_disk_changes_nothing_and_is_reported() -> None:
    harness = PauseHarness()
    await harness.service.pause(PauseRule(DOORS), BY)
    harness.state.fails = True
    applied = len(harness.router.applied)
    assert "nothing has changed" in failure(await harness.ask(PAUSE, pause_request(SPEED)), UCode.UNAVAILABLE)
    failure(await harness.ask(RESUME, resume_request(DOORS)), UCode.UNAVAILABLE)
    assert (harness.router.pause_rules.rules, len(harness.router.applied)) == ((PauseRule(DOORS),), applied)
    harness.state.fails = False
    await harness.service.pause(PauseRule(SPEED), BY)
    assert harness.router.pause_rules.rules == (PauseRule(DOORS), PauseRule(SPEED))


async def test_changes_are_refused_before_the_rules_are_read_and_after_the_end() -> None:
    state, router = StateOn(None, PauseService.TABLES), FakeRouter()
    service = PauseService(state, router, ControlConfig(), ACCESS, FakeClock())
    with pytest.raises(UStatusError, match="UNAVAILABLE"):
        await service.pause(PauseRule(SPEED), BY)
    with pytest.raises(UStatusError, match="UNAVAILABLE"):
        await service.resume(PauseRule(SPEED), BY)
    state.open()
    service.restore()
    assert await service.pause(PauseRule(SPEED), BY)
    service.close()
    state.close()
    with pytest.raises(UStatusError, match="UNAVAILABLE"):
        await service.resume(PauseRule(SPEED), BY)
    assert router.pause_rules.rules == (PauseRule(SPEED),)


async def test_more_than_a_thousand_rules_are_refused_until_one_is_removed() -> None:
    harness = PauseHarness()
    for number in range(MAX_RULES):
        harness.router.pause_rules.add(PauseRule(UUri("veh2", number, 1, 0x8000)))
    assert "1000 rules" in failure(await harness.ask(PAUSE, pause_request(SPEED)), UCode.RESOURCE_EXHAUSTED)
    assert not await harness.service.pause(harness.router.pause_rules.rules[0], BY)  # the rule exists: nothing is added
    await harness.service.resume(harness.router.pause_rules.rules[0], BY)
    assert await harness.service.pause(PauseRule(SPEED), BY)


async def test_after_concurrent_calls_disk_and_memory_agree(tmp_path: Path) -> None:
    harness = PauseHarness(tmp_path / "state.db")
    sources = [UUri("veh1", 1, 1, 0x8000 + number) for number in range(40)]
    async with asyncio.TaskGroup() as tasks:
        for source in sources:
            tasks.create_task(harness.service.pause(PauseRule(source), BY))
            tasks.create_task(harness.service.pause(PauseRule(source), BY))
        for source in sources[::2]:
            tasks.create_task(harness.service.resume(PauseRule(source), BY))
    assert harness.router.pause_rules.rules == tuple(PauseRule(source) for source in sources[1::2])
    assert on_disk(tmp_path / "state.db") == list(harness.router.pause_rules.rules)


# who is allowed to


async def test_by_default_nobody_is_allowed_not_even_on_the_own_device(caplog: pytest.LogCaptureFixture) -> None:
    harness = PauseHarness(
        access=Access(GATEWAY, frozenset({GATEWAY, "veh1"}), homes=lambda authority: (f"at-{authority}",))
    )
    for caller in (CALLER, STRANGER):
        for method, payload in ((PAUSE, pause_request(SPEED)), (RESUME, resume_request(SPEED)), (FETCH, None)):
            text = failure(await harness.ask(method, payload, caller), UCode.PERMISSION_DENIED)
            assert "control.allow" in text
            assert f"denied who={caller} where=at-{caller.authority} " in caplog.records[-1].getMessage()
    assert harness.router.pause_rules.rules == ()


async def test_patterns_of_the_configuration_are_allowed_until_a_reload_says_otherwise() -> None:
    harness = PauseHarness(access=Access(GATEWAY, frozenset({"veh1"}), control=(UUri.parse("//cloud/FFFF8000/2/0"),)))
    assert (await harness.ask(PAUSE, pause_request(SPEED), STRANGER)).attributes.commstatus is None
    failure(await harness.ask(PAUSE, pause_request(DOORS), CALLER), UCode.PERMISSION_DENIED)
    failure(await harness.ask(PAUSE, pause_request(DOORS), STRANGER._replace(version=1)), UCode.PERMISSION_DENIED)
    harness.service.use(ControlConfig(), ACCESS)
    failure(await harness.ask(RESUME, resume_request(SPEED), STRANGER), UCode.PERMISSION_DENIED)
    assert (await harness.ask(RESUME, resume_request(SPEED), CALLER)).attributes.commstatus is None


async def test_one_uentity_cannot_take_all_the_rules(tmp_path: Path) -> None:
    harness = PauseHarness(tmp_path / "state.db", with_constants(ControlConfig, max_rules=3))
    topics = [SPEED._replace(resource=0x9000 + number) for number in range(4)]
    for topic in topics[:3]:
        assert (await harness.ask(PAUSE, pause_request(topic))).attributes.commstatus is None
    assert str(CALLER) in failure(await harness.ask(PAUSE, pause_request(topics[3])), UCode.RESOURCE_EXHAUSTED)
    assert (await harness.ask(PAUSE, pause_request(topics[0]))).attributes.commstatus is None  # it is there already
    other = CALLER._replace(ue_id=7)
    assert (await harness.ask(PAUSE, pause_request(topics[3]), other)).attributes.commstatus is None
    assert (await harness.ask(RESUME, resume_request(topics[0]), other)).attributes.commstatus is None
    assert (await harness.ask(PAUSE, pause_request(topics[0]))).attributes.commstatus is None
    async with asyncio.TaskGroup() as tasks:  # together, while the disk is slow
        tasks.create_task(harness.ask(PAUSE, pause_request(DOORS)))
        tasks.create_task(harness.ask(PAUSE, pause_request(DOORS._replace(resource=0x9999))))
    assert len(harness.router.pause_rules.rules) == 4
    assert await harness.service.pause(PauseRule(DOORS), BY)  # a person is not bounded by that


async def test_a_reload_takes_another_number_of_rules(tmp_path: Path) -> None:
    harness = PauseHarness(tmp_path / "state.db", with_constants(ControlConfig, max_rules=1))
    assert (await harness.ask(PAUSE, pause_request(SPEED))).attributes.commstatus is None
    failure(await harness.ask(PAUSE, pause_request(DOORS)), UCode.RESOURCE_EXHAUSTED)
    harness.service.use(with_constants(ControlConfig, max_rules=2), ACCESS)
    assert (await harness.ask(PAUSE, pause_request(DOORS))).attributes.commstatus is None


async def test_every_change_is_in_the_audit_log_with_who_made_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    harness = PauseHarness()
    await harness.ask(PAUSE, pause_request(SPEED))
    await harness.ask(PAUSE, pause_request(SPEED))
    await harness.service.resume(PauseRule(SPEED), Caller("http", "127.0.0.1"))
    said = [record.getMessage() for record in caplog.records if record.name == "streamer.audit"]
    assert said == [
        f"paused who={CALLER} where=nowhere rule={SPEED} rules=1",
        f"resumed who=http where=127.0.0.1 rule={SPEED} rules=0",
    ]


# invalid rules


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (None, "rule.topic: expected a UUri"),
        (pause_request(UUri("veh1", 1, 1, 7)), "a method is a sink"),
        (pause_request(UUri("", 1, 1, 0x8000)), "expected an authority"),
        (pause_request(UUri("veh1", 1, 300, 0x8000)), "at most 8 bits"),
        (pause_request(SPEED, SPEED), "rule.sink"),
    ],
    ids=["none", "method", "no authority", "range", "topic as sink"],
)
async def test_a_rule_that_is_not_valid_is_answered_with_what_was_expected(payload: Message | None, expected: str) -> None:
    harness = PauseHarness()
    assert expected in failure(await harness.ask(PAUSE, payload), UCode.INVALID_ARGUMENT)
    assert harness.router.pause_rules.rules == ()


# listing


async def test_a_message_counts_under_every_rule_that_pauses_it() -> None:
    harness = PauseHarness()
    wide, speed, other = PauseRule.parse("//veh1/FFFFFFFF/FF/FFFF"), PauseRule(SPEED), PauseRule(UUri("veh2", 1, 1, 0x8000))
    for rule in (wide, speed, other):
        await harness.service.pause(rule, BY)
    harness.router.flows = [((SPEED, None), 3), ((SPEED, CLOUD_APP), 4), ((DOORS, None), 5)]
    assert harness.service.rules() == [PausedRule(wide, 3, 12), PausedRule(speed, 2, 7), PausedRule(other, 0, 0)]
    answer = ustreamer.FetchStopsResponse.FromString((await harness.ask(FETCH, None)).payload or b"")
    assert [(uri_from_proto(s.rule.topic), s.rule.HasField("sink"), s.lanes, s.messages) for s in answer.stops] == [
        (wide.source, False, 3, 12),
        (SPEED, False, 2, 7),
        (other.source, False, 0, 0),
    ]
    assert not answer.has_more_records


async def test_many_rules_are_listed_page_by_page_without_gaps() -> None:
    harness = PauseHarness()
    rules = [PauseRule(UUri("veh2", number, 1, 0x8000), CLOUD_APP) for number in range(MAX_RULES)]
    for rule in rules:
        harness.router.pause_rules.add(rule)
    found: list[PauseRule] = []
    has_more = True
    while has_more:
        asked = ustreamer.FetchStopsRequest(offset=len(found))
        answer = ustreamer.FetchStopsResponse.FromString((await harness.ask(FETCH, asked)).payload or b"")
        assert answer.stops
        found += [PauseRule(uri_from_proto(s.rule.topic), uri_from_proto(s.rule.sink)) for s in answer.stops]
        has_more = answer.has_more_records
    assert found == rules


# the protobuf messages


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (ustreamer.DispatchRule, {1: "topic", 2: "sink"}),
        (ustreamer.StopDispatchRequest, {1: "rule"}),
        (ustreamer.StopDispatchResponse, {1: "changed"}),
        (ustreamer.StartDispatchRequest, {1: "rule"}),
        (ustreamer.StartDispatchResponse, {}),
        (ustreamer.FetchStopsRequest, {1: "offset"}),
        (ustreamer.FetchStopsResponse, {1: "stops", 2: "has_more_records"}),
        (ustreamer.DispatchStop, {1: "rule", 2: "lanes", 3: "messages"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_numbers_of_methods_and_fields_are_what_callers_rely_on(message: type[Message], fields: dict[int, str]) -> None:
    assert {field.number: field.name for field in message.DESCRIPTOR.fields} == fields
    assert (PAUSE, RESUME, FETCH) == (1, 2, 3)
