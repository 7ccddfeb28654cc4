"""What the trace says of a message, whatever became of it: one record per outcome, none before there is one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from streamer.delivery.outcomes.settle import NO_ROUTE
from streamer.features.traces.record import Buffer
from streamer.features.traces.recorder import Recorder
from streamer.transports.base import Presence
from streamer.transports.errors import PermanentError, RefusedError
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.status import UCode
from tests.clock import START_MS
from tests.flow.harness import CLIMATE, CLOUD_APP, ORDERS, SPEED, VEHICLE_APP, RouterHarness, three_networks
from tests.flow.journaled_run import journaled_run
from tests.unit.features.traces.witness import TraceWitness

START = datetime.fromtimestamp(START_MS / 1000, UTC)
UNCONFIRMED_S = 10
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def traces(harness: RouterHarness) -> list[dict[str, object]]:
    return harness.witness(TraceWitness).rows()


def told(row: dict[str, object], *names: str) -> tuple[object, ...]:
    return tuple(row[name] for name in names)


async def test_times_from_entry_to_the_last_send_and_to_the_confirmation() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.lose_link()
        message = harness.notify(b"12345", ttl=60_000, traceparent=TRACEPARENT)
        harness.clock.ms += 40  # it is this old when it comes
        harness.arrive("vehicle", message)
        harness.pass_time(3000)
        cloud.is_withholding = True
        cloud.restore_link()
        harness.pass_time(500)
        assert traces(harness) == []
        cloud.release_withheld()
        (row,) = traces(harness)
    assert row["ts"] == START + timedelta(milliseconds=40)
    assert row["msg_ts"] == START
    assert told(row, "age_us", "queue_wait_us", "latency_us") == (40_000, 3_000_000, 3_500_000)
    assert told(row, "msg_id", "payload_bytes", "ttl_ms", "traceparent") == (message.id, 5, 60_000, TRACEPARENT)
    assert told(row, "route", "ingress", "egress", "egress_transport") == ("vehicle-cloud", "vehicle", "cloud", "memory")
    assert told(row, "outcome", "ucode", "retries", "redelivered") == ("delivered", "OK", 0, False)
    assert told(row, "sink_authority", "sink_ue_id", "sink_resource_id") == ("cloud", CLOUD_APP.ue_id, CLOUD_APP.resource)


async def test_a_message_with_two_destinations_gives_two_records_and_one_with_none_gives_one() -> None:
    routes = [{"from": "vehicle", "to": to, "publish": [str(SPEED)]} for to in ("cloud", "phone")]
    async with RouterHarness(three_networks(routes=routes)) as harness:
        harness.arrive("vehicle", harness.speed())
        assert sorted(str(row["egress"]) for row in traces(harness)) == ["cloud", "phone"]
    async with RouterHarness() as harness:
        harness.arrive("vehicle", harness.notify(sink=VEHICLE_APP))
        (row,) = traces(harness)
    assert told(row, "route", "ingress", "egress", "outcome") == (NO_ROUTE, "vehicle", None, "local")


async def test_refusals_are_retries() -> None:
    refusals = 2

    async with RouterHarness() as harness:
        left = [RefusedError(UCode.RESOURCE_EXHAUSTED, "not now")] * refusals
        harness.transports["cloud"].refuse = lambda message: left.pop() if left else None
        harness.arrive("vehicle", harness.notify())
        for _ in range(10):
            harness.pass_time(1000)
        (row,) = traces(harness)
    assert told(row, "outcome", "retries", "redelivered") == ("delivered", refusals, False)


async def test_a_permanent_refusal_is_traced_and_its_dead_letter_is_a_message_of_its_own() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "never")
        message = harness.notify()
        harness.arrive("vehicle", message)
        refused, letter = traces(harness)
    assert told(refused, "msg_id", "outcome", "ucode") == (message.id, "dead_lettered", "PERMISSION_DENIED")
    assert told(letter, "route", "ingress", "egress", "outcome") == ("dead-letter/vehicle", None, "vehicle", "delivered")
    assert letter["src_resource_id"] == 0x8001


async def test_messages_unconfirmed_when_the_link_was_lost_are_marked_as_redelivered() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        harness.arrive("vehicle", harness.notify())
        cloud.lose_link()
        cloud.is_withholding = False
        cloud.restore_link()
        harness.pass_time(100)
        (row,) = traces(harness)
    assert told(row, "outcome", "retries", "redelivered") == ("delivered", 0, True)


async def test_a_copy_is_traced_beside_the_first() -> None:
    async with RouterHarness() as harness:
        message = harness.notify()
        harness.arrive("vehicle", message)
        harness.arrive("vehicle", message)
        first, copy = traces(harness)
    assert told(first, "route", "outcome") == ("vehicle-cloud", "delivered")
    assert told(copy, "route", "outcome", "msg_id") == (NO_ROUTE, "duplicate", message.id)


async def test_a_request_that_expires_and_its_error_response() -> None:
    async with RouterHarness() as harness:
        harness.transports["vehicle"].lose_link()
        request = harness.ask(ttl=1000)
        harness.arrive("cloud", request)
        harness.pass_time(1100)
        rows = {str(row["route"]): row for row in traces(harness)}
    expired, answer = rows["cloud-vehicle"], rows["rpc-error/cloud"]
    assert told(expired, "msg_type", "outcome", "ucode") == ("request", "expired", "DEADLINE_EXCEEDED")
    assert expired["queue_wait_us"] is None
    assert told(answer, "msg_type", "req_id", "sink_authority") == ("response", request.id, "cloud")


async def test_unconfirmed_message_is_traced_when_it_counts_as_delivered_with_the_time_when_it_left() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        harness.arrive("cloud", harness.notify(sink=VEHICLE_APP, source=ORDERS))
        harness.router.custody.flush()
        harness.pass_time(UNCONFIRMED_S * 1000 - 100)
        assert traces(harness) == []
        harness.pass_time(200)
        (row,) = traces(harness)
    assert told(row, "outcome", "latency_us", "redelivered", "ts") == ("delivered", 0, False, START)


async def test_redelivered_message_is_traced_once() -> None:
    async with RouterHarness(unconfirmed_s=UNCONFIRMED_S) as harness:
        vehicle = harness.transports["vehicle"]
        messages = [harness.notify(b"%d" % number, sink=VEHICLE_APP, source=ORDERS) for number in range(3)]
        harness.arrive("cloud", *messages)
        harness.router.custody.flush()
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        harness.pass_time(2000)
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.PRESENT)
        harness.router.custody.flush()
        harness.pass_time(UNCONFIRMED_S * 1000 + 50)
        rows = traces(harness)
        assert len(harness.sent("vehicle")) == 6
    assert [row["msg_id"] for row in rows] == [message.id for message in messages]
    assert {told(row, "outcome", "redelivered", "ts", "latency_us") for row in rows} == {
        ("delivered", True, START, 2_000_000)
    }


async def test_message_from_the_journal_keeps_the_time_when_it_came_in(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with journaled_run(path) as first:
        first.hold()
        message = first.harness.notify(sink=VEHICLE_APP, source=ORDERS)
        first.harness.arrive("cloud", message)
        await first.flush()
        assert traces(first.harness) == []
        clock = first.harness.clock
    clock.ms += 60_000
    clock.s = 5.0  # the machine was started again
    async with journaled_run(path, clock=clock) as second:
        (row,) = traces(second.harness)
    assert told(row, "msg_id", "outcome", "redelivered", "ts", "latency_us") == (
        message.id,
        "delivered",
        True,
        START,
        60_000_000,
    )


async def test_a_response_names_its_request() -> None:
    async with RouterHarness() as harness:
        request = harness.ask()
        harness.arrive("cloud", request)
        answer = replace(
            request,
            id=harness.notify().id,
            attributes=type(request.attributes)(
                UMessageType.RESPONSE,
                CLIMATE,
                request.attributes.source,
                reqid=request.id,
                priority=request.attributes.priority,
            ),
        )
        harness.arrive("vehicle", answer)
        asked, answered = traces(harness)
    assert told(asked, "msg_type", "msg_id", "req_id") == ("request", request.id, None)
    assert told(answered, "msg_type", "msg_id", "req_id") == ("response", answer.id, request.id)


async def test_a_reload_writes_the_traces_somewhere_else_from_the_next_outcome_on() -> None:
    """Also of what was sent before, and is not confirmed yet."""
    async with RouterHarness(unconfirmed_s=10) as harness:
        harness.arrive("cloud", harness.notify(sink=VEHICLE_APP, source=ORDERS))
        taken: list[Buffer] = []

        def take(buffer: Buffer) -> bool:
            taken.append(buffer)
            return True

        other = Recorder({}, take, lambda: 0)
        harness.router.replace_observer(harness.witness(TraceWitness).observer, other)
        before = len(traces(harness))
        harness.router.custody.flush()
        harness.clock.advance(11_000)
        harness.router.tick()
        other.hand_on()
        assert (sum(buffer.records for buffer in taken), len(traces(harness))) == (1, before)
