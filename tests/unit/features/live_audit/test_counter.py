"""What a router does is counted by class, minute, endpoint and kind."""

import itertools
from collections.abc import Iterator

import pytest

from streamer.delivery.lanes.lane import MAY_HAVE_ARRIVED, RESTORED, Delivery
from streamer.delivery.observers import OutcomeObserver
from streamer.delivery.router import Additions
from streamer.features.live_audit import counter as module
from streamer.features.live_audit.counter import CountingStep, MessageCounter, class_of
from streamer.features.live_audit.sums import MINUTE_MS, NOTHING, FlowClass, IdCipher, Sum
from streamer.transports.base import LinkState
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import new_id
from tests.clock import START_MS
from tests.flow.harness import CLOUD_APP, GATEWAY, SPEED, RouterHarness

CIPHER = IdCipher(bytes(range(16)))
MINUTE = START_MS // MINUTE_MS
SPEEDS = FlowClass("veh1", "", *SPEED[1:])

Counted = dict[tuple[FlowClass, int, str, int], Sum]


class CountedHarness(RouterHarness):
    async def __aenter__(self) -> "CountedHarness":
        await super().__aenter__()
        return self

    def __init__(self, **options: object) -> None:
        self.counter = MessageCounter(CIPHER.fold)
        steps = (lambda inlet: CountingStep(inlet.endpoint, self.counter),)
        super().__init__(additions=Additions(observers=(self.counter,), steps=steps), **options)  # type: ignore[arg-type]

    def counted(self) -> Counted:
        """Every sum of the minutes that are open, which are closed."""
        return {
            (flow, minute, *name): each
            for flow, minute, sums in self.counter.closed(1e9, 0.0)
            for name, each in sums.items()
        }


def sum_of(*messages: UMessage) -> Sum:
    return Sum(len(messages), CIPHER.fold(b"".join(message.id for message in messages)))


async def test_messages_are_taken_in_and_delivered() -> None:
    async with CountedHarness() as harness:
        speeds = [harness.speed(), harness.speed(traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")]
        calls = harness.ask(), harness.notify(source=UUri("cloud", 0xC0, 1, 0x9000), sink=UUri("veh1", 0xB, 1, 0))
        harness.arrive("vehicle", *speeds)
        harness.arrive("cloud", *calls)
        to_vehicle = FlowClass("cloud", "veh1")
        assert harness.counted() == {
            (SPEEDS, MINUTE, "vehicle", 0): sum_of(*speeds),
            (SPEEDS, MINUTE, "cloud", 1): sum_of(*speeds),
            (to_vehicle, MINUTE, "cloud", 0): sum_of(*calls),
            (to_vehicle, MINUTE, "vehicle", 1): sum_of(*calls),
        }


async def test_what_is_no_delivery_has_a_kind_of_its_own_where_it_came_from() -> None:
    async with CountedHarness() as harness:
        speed, late = harness.speed(), harness.speed(ttl=1)
        stranger = harness.notify(source=UUri("else", 1, 1, 0x8000))
        harness.clock.advance(2)
        harness.arrive("vehicle", speed, speed, late, stranger)
        found = {key: each for key, each in harness.counted().items() if key[3] > 1 and key[0].source != GATEWAY}
        assert found == {
            (SPEEDS, MINUTE, "vehicle", 2): sum_of(speed),
            (SPEEDS, MINUTE, "vehicle", 3): sum_of(late),
            (FlowClass("else", "cloud"), MINUTE, "vehicle", 4): sum_of(stranger),
        }


async def test_what_expires_in_a_queue_counts_where_it_was_to_leave() -> None:
    async with CountedHarness() as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        late = harness.notify(ttl=1000)
        harness.arrive("vehicle", late)
        harness.pass_time(2000)
        counted = harness.counted()
        assert counted[FlowClass("veh1", CLOUD_APP.authority), MINUTE, "cloud", 3] == sum_of(late)
        assert (FlowClass("veh1", CLOUD_APP.authority), MINUTE, "cloud", 1) not in counted


class Again(OutcomeObserver):
    """Says of each delivery that is sent that it was sent by an earlier process already."""

    def __init__(self, counter: MessageCounter) -> None:
        self._counter = counter

    def sent(self, delivery: Delivery, now_s: float, now_ms: int) -> bytes:
        delivery.history = RESTORED | MAY_HAVE_ARRIVED
        return self._counter.sent(delivery, now_s, now_ms)


async def test_what_an_earlier_process_has_sent_is_not_counted_again() -> None:
    async with CountedHarness(unconfirmed_s=10) as harness:
        harness.router.replace_observer(None, Again(harness.counter))
        call = harness.ask(ttl=60_000)
        harness.arrive("cloud", call)
        assert harness.counted()[FlowClass("cloud", "veh1"), MINUTE, "vehicle", 1] == sum_of(call)


async def test_a_message_after_its_minute_was_closed_is_counted_too() -> None:
    async with CountedHarness() as harness:
        harness.arrive("vehicle", harness.speed())
        harness.counted()
        harness.arrive("vehicle", late := harness.speed())
        assert list(harness.counted().values()) == [sum_of(late)] * 2


async def test_what_nobody_confirms_is_counted_once_when_it_is_sent() -> None:
    async with CountedHarness(unconfirmed_s=10) as harness:
        call = harness.ask(ttl=60_000)
        harness.arrive("cloud", call)
        harness.pass_time(100)
        harness.pass_time(11_000)
        assert harness.counted()[FlowClass("cloud", "veh1"), MINUTE, "vehicle", 1] == sum_of(call)


def ids(minute: int = MINUTE) -> Iterator[bytes]:
    return (new_id(minute * MINUTE_MS) for _ in itertools.count())


class Counting:
    """A counter that is fed by hand."""

    def __init__(self) -> None:
        self.counter = MessageCounter(CIPHER.fold)

    def count(self, message_id: bytes, topic: UUri = SPEED, now_s: float = 0.0) -> None:
        cell = self.counter.cell("vehicle", 0, (topic, None), message_id, now_s, START_MS)
        cell.ids += message_id


def test_a_message_that_comes_later_opens_its_minute_again() -> None:
    counting, first, later = Counting(), *itertools.islice(ids(), 2)
    counting.count(first)
    assert counting.counter.closed(5.0, 15.0) == []
    ((_, minute, before),) = counting.counter.closed(20.0, 15.0)
    counting.count(later, now_s=30.0)
    counting.counter.closed(35.0, 15.0)
    ((_, again, after),) = counting.counter.closed(50.0, 15.0)
    assert (minute, again) == (MINUTE, MINUTE)
    total = before["vehicle", 0].plus(after["vehicle", 0])
    assert total == Sum(2, CIPHER.fold(first + later))


def test_the_minute_is_that_of_the_id() -> None:
    counting = Counting()
    for minute in (MINUTE - 60, MINUTE, MINUTE + 60):
        counting.count(next(ids(minute)))
    assert sorted(minute for _, minute, _ in counting.counter.closed(0.0, 0.0)) == [MINUTE - 60, MINUTE, MINUTE + 60]


def test_what_has_no_room_is_one_of_the_others() -> None:
    counting = Counting()
    for number in range(module.MAX_OF_SOURCE + 3):
        counting.count(next(ids()), UUri("veh1", 1, 1, 0x8000 + number))
    counting.count(next(ids()), UUri("veh2", 1, 1, 0x8000))
    for distance in (-2 * 1440, 2 * 1440):
        counting.count(next(ids(MINUTE + distance)))
    assert len(counting.counter.minutes) == module.MAX_OF_SOURCE + 1
    counting.counter.closed(0.0, 0.0)
    assert counting.counter.others == 5
    counting.count(next(ids()))
    assert len(counting.counter.minutes) == 1


def test_rows_themselves_are_not_counted() -> None:
    counting = Counting()
    counting.count(next(ids()), UUri("gw", 4, 1, module.ROWS))
    assert (counting.counter.closed(1.0, 0.0), counting.counter.others) == ([], 0)


@pytest.mark.parametrize(
    ("source", "sink", "text"),
    [
        (SPEED, None, "//veh1/A8000/2/8A50"),
        (SPEED, everything_at("cloud"), "//veh1/A8000/2/8A50 to cloud"),
        (SPEED, CLOUD_APP, "veh1 to cloud"),
        (CLOUD_APP, UUri("veh1", 0xB, 1, 7), "cloud to veh1"),
    ],
)
def test_classes_have_names(source: UUri, sink: UUri | None, text: str) -> None:
    assert str(class_of(source, sink)) == text


@pytest.mark.parametrize("number", [1, 2, 3, 7, 64, 1001])
def test_a_sum_is_the_same_in_whichever_parts_it_is_added(number: int) -> None:
    many = list(itertools.islice(ids(), number))
    parts = NOTHING
    for each in reversed(many):
        parts = parts.plus(Sum(1, CIPHER.fold(each)))
    assert parts == Sum(number, CIPHER.fold(b"".join(many)))
    without = parts.minus(Sum(number - 1, CIPHER.fold(b"".join(many[1:]))))
    assert CIPHER.id_in(without, MINUTE) == many[0]
    assert CIPHER.id_in(without, MINUTE + 1) is None
    assert IdCipher().id_in(without, MINUTE) is None
