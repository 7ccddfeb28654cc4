"""Which messages have spans, and what these say."""

from dataclasses import replace

import pytest

from streamer.delivery.lanes.lane import RESTORED
from streamer.features.otel.spans import SpanRecord, Spans
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.errors import PermanentError
from streamer.uprotocol.status import UCode
from tests.flow.harness import RouterHarness, configuration
from tests.unit.delivery.messages import NOW_MS, message, push, route_queue

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"


def traced(harness: RouterHarness, sample: float = 0, queue: int = 100) -> Spans:
    spans = Spans(sample, queue)
    harness.router.replace_observer(None, spans)
    return spans


async def test_a_sampled_traceparent_is_continued() -> None:
    async with RouterHarness() as harness:
        spans = traced(harness)
        message = harness.speed(traceparent=SAMPLED)
        harness.transports["cloud"].is_withholding = True
        harness.arrive("vehicle", message)
        harness.pass_time(250)
        harness.transports["cloud"].release_withheld()
        (span,) = spans.take(10)
        assert (span.trace_id, span.parent_id) == (int(TRACE, 16), int(PARENT, 16))
        assert (span.names, span.outcome, span.code) == (("vehicle-cloud", "vehicle", "cloud"), Outcome.DELIVERED, UCode.OK)
        assert span.end_ns - span.start_ns == 250_000_000
        assert span.end_ns == harness.clock.wall_ms() * 1_000_000
        assert span.attributes.traceparent is None
        assert (span.message_id, span.attributes) == (message.id, message.attributes.shared)
        assert harness.sent("cloud")[0].attributes.traceparent == SAMPLED  # every attribute arrives as it was sent


@pytest.mark.parametrize(
    ("traceparent", "is_sampled"),
    [
        (f"00-{TRACE}-{PARENT}-00", False),
        (f"00-{TRACE}-{PARENT}-02", False),
        (f"00-{TRACE}-{PARENT}-03", True),
        (f"cc-{TRACE}-{PARENT}-01-later", True),
    ],
)
async def test_the_flag_of_a_traceparent_decides_whatever_the_ratio_is(traceparent: str, is_sampled: bool) -> None:
    for sample in (0.0, 1.0):
        async with RouterHarness() as harness:
            spans = traced(harness, sample)
            harness.arrive("vehicle", harness.speed(traceparent=traceparent))
            assert len(spans) == is_sampled


@pytest.mark.parametrize(
    "traceparent",
    [
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01x",
        "-",
    ],
)
async def test_what_is_no_traceparent_is_as_if_there_was_none(traceparent: str) -> None:
    for sample in (0.0, 1.0):
        async with RouterHarness() as harness:
            spans = traced(harness, sample)
            sent = harness.speed()
            sent = replace(sent, attributes=replace(sent.attributes, traceparent=traceparent))
            harness.arrive("vehicle", sent)
            found = {(span.trace_id, span.parent_id) for span in spans.take(10) if span.message_id == sent.id}
            assert found == ({(int.from_bytes(sent.id, "big"), None)} if sample else set())


@pytest.mark.parametrize("sample", [0.0, 0.25, 1.0])
async def test_without_a_traceparent_the_ratio_decides_and_the_id_is_the_trace(sample: float) -> None:
    async with RouterHarness() as harness:
        spans = traced(harness, sample, 2000)
        messages = [harness.speed() for _ in range(1000)]
        harness.arrive("vehicle", *messages)
        found = spans.take(2000)
        assert abs(len(found) - 1000 * sample) <= 100
        assert {span.trace_id for span in found} <= {int.from_bytes(message.id, "big") for message in messages}
        assert {span.parent_id for span in found} <= {None}


async def test_every_streamer_on_the_way_samples_the_same_messages() -> None:
    async with RouterHarness() as one, RouterHarness() as other:
        both = [traced(harness, 0.5) for harness in (one, other)]
        messages = [one.speed() for _ in range(50)]
        for harness in (one, other):
            harness.arrive("vehicle", *messages)
        first, second = ({span.trace_id for span in spans.take(100)} for spans in both)
        assert first
        assert first == second


async def test_what_fails_or_is_turned_away_has_a_span_that_says_why() -> None:
    async with RouterHarness(configuration(dead_letter={"endpoints": []})) as harness:
        spans = traced(harness)
        harness.transports["cloud"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "never")
        harness.arrive("vehicle", harness.speed(traceparent=SAMPLED))
        expired = harness.speed(traceparent=SAMPLED, ttl=1)
        harness.clock.ms += 10
        harness.arrive("vehicle", expired)

        def told(span: SpanRecord) -> tuple[object, ...]:
            return span.names, span.outcome, span.code, span.text

        refused, late = spans.take(10)
        assert told(refused)[:3] == (("vehicle-cloud", "vehicle", "cloud"), Outcome.DEAD_LETTERED, UCode.PERMISSION_DENIED)
        assert refused.text == "never"
        assert told(late)[:3] == (("none", "vehicle", ""), Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED)


async def test_what_nobody_confirms_has_its_span_when_it_was_sent() -> None:
    async with RouterHarness(unconfirmed_s=15) as harness:
        spans = traced(harness)
        harness.arrive("cloud", harness.ask(traceparent=SAMPLED))
        (span,) = spans.take(10)
        assert (span.outcome, span.is_confirmed) == (Outcome.DELIVERED, False)
        harness.pass_time(1000)
        harness.pass_time(20_000)
        assert len(spans) == 0
        assert harness.ledger.counted.total() == 1  # others observe it once it counts as delivered


@pytest.mark.parametrize(("age_ms", "lasts_ms"), [(5000, 5000), (-5000, 0)], ids=["usually", "the clock was set back"])
def test_the_span_of_a_message_from_before_a_restart_begins_with_its_reception(age_ms: int, lasts_ms: int) -> None:
    spans = Spans(1.0, 10)
    delivery = push(route_queue(), message())
    delivery.history |= RESTORED
    delivery.entered_ms = NOW_MS - age_ms
    spans.delivered([delivery], delivery.entered_s, NOW_MS)
    (span,) = spans.take(10)
    assert (span.end_ns, span.end_ns - span.start_ns) == (NOW_MS * 1_000_000, lasts_ms * 1_000_000)


def test_a_message_without_an_id_has_no_trace() -> None:
    spans = Spans(1.0, 10)
    nobody = replace(message(), id=bytes(16))
    spans.never_queued(
        nobody, ("none", "vehicle", ""), Failure(Outcome.REJECTED, UCode.INVALID_ARGUMENT, "no id"), 0.0, NOW_MS
    )
    assert len(spans) == 0


async def test_the_queue_is_bounded_and_what_is_dropped_is_counted() -> None:
    async with RouterHarness() as harness:
        spans = traced(harness, 1.0, queue=3)
        harness.arrive("vehicle", *(harness.speed() for _ in range(5)))
        assert (len(spans), spans.dropped) == (3, 2)
        assert len(spans.take(2)) == 2
        harness.arrive("vehicle", harness.speed())
        assert (len(spans), spans.dropped) == (2, 2)


async def test_what_is_put_back_is_taken_again_before_all_others() -> None:
    async with RouterHarness() as harness:
        spans = traced(harness, 1.0)
        harness.arrive("vehicle", *(harness.speed() for _ in range(5)))
        taken = spans.take(3)
        spans.put_back(taken)
        found = spans.take(10)
        assert found[:3] == taken
        assert len({span.message_id for span in found}) == 5
