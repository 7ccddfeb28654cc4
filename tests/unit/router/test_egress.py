"""The way out: which lane goes next, the window, and transports that confirm in every way one can think of."""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.router.custody import Custody
from streamer.router.egress import Egress
from streamer.router.lane import Delivery, Park
from streamer.router.outcome import Outcome
from streamer.router.queue import RouteQueue
from streamer.router.remember import RememberedIds
from streamer.router.settle import Settler
from streamer.transports.base import LinkState
from streamer.transports.errors import LinkLostError, PermanentError, RefusedError
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from tests.unit.router.actors import NOW_MS, Harbour, WoundClock, message, push, route_queue

NOT_NOW = RefusedError(UCode.RESOURCE_EXHAUSTED, "not now")
NEVER = PermanentError(UCode.PERMISSION_DENIED, "never")
PATIENT = {"initial_ms": 100, "factor": 1, "max_ms": 100, "jitter": 0, "attempts": 1_000_000}


class Port:
    """An egress with its queues, and a transport that obeys. Every settling sends on, as in the router."""

    def __init__(self, harbour: Harbour | None = None, **keys: object) -> None:
        self.clock = WoundClock()
        self.harbour = harbour or Harbour()
        custody = Custody(lambda after_s, call: None, self.clock)
        self.settler = Settler(self.clock, RememberedIds(1000, 1000, 0), custody)
        self.settler.after_settling = lambda egress: egress.pump(self.clock.ms)
        self.egress = Egress("cloud", self.harbour, self.settler, custody, self.clock, lambda: 0.5)
        self.queue = route_queue(**keys)
        self.egress.add_queue(self.queue)

    def load(self, *messages: UMessage, queue: RouteQueue | None = None) -> list["Loaded"]:
        """Accept messages without sending yet."""
        held = []
        for sent in messages:
            delivery = push(queue or self.queue, sent)
            held.append(Loaded(delivery))
            self.egress.file(delivery.lane)
        return held

    def pump(self) -> None:
        self.egress.pump(self.clock.ms)

    def wind(self, ms: int) -> None:
        self.clock.wind(ms)
        self.egress.tick(self.clock.s, self.clock.ms)

    def outcomes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for (outcome, _), number in self.queue.stats.outcomes.items():
            found[outcome.value] = found.get(outcome.value, 0) + number
        return found

    def check_books(self) -> None:
        assert self.queue.stats.accepted == self.queue.stats.settled + self.queue.messages
        lanes = self.queue.lanes.values()
        assert self.egress.in_flight == sum(lane.in_flight for lane in lanes)
        assert self.queue.messages == self.egress.in_flight + sum(lane.live for lane in lanes)


class Loaded:
    """A delivery, with the message and receipt that it lets go of when it is settled."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.message = delivery.message
        self.received = delivery.received

    def __getattr__(self, name: str) -> object:
        return getattr(self.delivery, name)


def flows(messages: list[UMessage]) -> list[int]:
    return [m.attributes.source.resource - 0x8000 for m in messages]


def open_windows(port: Port, flow_numbers: list[int], messages: int = 100) -> None:
    """Let lanes reach a wide window, then forget what was sent for it."""
    waiting = port.harbour.confirms_at_once
    port.harbour.confirms_at_once = True
    for flow in flow_numbers:
        port.load(*(message(flow) for _ in range(messages)))
    port.pump()
    port.harbour.submitted.clear()
    port.harbour.confirms_at_once = waiting


# priority between lanes


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_lanes_go_by_class_and_equal_ones_by_age(levels: list[int]):
    port = Port()
    port.load(*(message(flow, level) for flow, level in enumerate(levels)))
    port.pump()
    assert flows(port.harbour.left) == sorted(range(len(levels)), key=lambda flow: (-levels[flow], flow))


def test_lane_is_as_urgent_as_its_most_urgent_message_and_no_longer_than_it_waits():
    port = Port(Harbour(confirms_at_once=False, capacity=1), flow_window=1)
    port.load(message(0, 0, payload=b"a"), message(0, 6, payload=b"b"), message(0, 0, payload=b"c"), message(1, 3))
    port.pump()
    for _ in range(3):
        port.harbour.answer()
    assert flows(port.harbour.left) == [0, 0, 1, 0]


def test_urgent_message_that_arrives_later_goes_next():
    port = Port(Harbour(confirms_at_once=False, capacity=1))
    port.load(*(message(0, 0) for _ in range(5)), *(message(1, 0) for _ in range(5)))
    port.pump()
    port.load(message(2, 6))
    port.harbour.answer()
    assert flows(port.harbour.left) == [0, 2]


def test_lane_whose_window_is_opening_holds_the_lower_classes_back():
    port = Port(Harbour(confirms_at_once=False))
    port.load(*(message(1, 0) for _ in range(50)), *(message(0, 6) for _ in range(50)))
    port.pump()
    while port.harbour.open:
        port.harbour.answer()
    assert flows(port.harbour.left) == [0] * 50 + [1] * 50


def test_lane_that_begins_to_wait_for_its_window_later_holds_the_lower_classes_back_too():
    port = Port(Harbour(confirms_at_once=False))
    port.load(message(0, 6))
    port.pump()
    port.load(*(message(0, 6) for _ in range(3)), *(message(1, 0) for _ in range(3)))
    port.pump()
    assert flows(port.harbour.left) == [0]
    port.harbour.answer()
    assert flows(port.harbour.left) == [0, 0, 0]


def test_lane_that_stands_still_holds_nobody_back():
    port = Port(Harbour(confirms_at_once=False), retry=PATIENT)
    port.load(*(message(0, 6) for _ in range(5)), message(1, 0))
    port.pump()
    port.harbour.answer(error=NOT_NOW)
    assert flows(port.harbour.left) == [0, 1]


# fairness


def test_equal_lanes_take_turns_of_a_quantum():
    port = Port()
    open_windows(port, [0, 1, 2])
    port.load(*(message(flow) for flow in (0, 1, 2) for _ in range(200)))
    port.pump()
    turns = flows(port.harbour.left)
    assert turns[: 3 * 64] == [0] * 64 + [1] * 64 + [2] * 64
    assert turns.count(0) == turns.count(1) == turns.count(2) == 200


def test_lane_that_was_urgent_now_and_then_is_listed_once_and_gets_no_more_turns_than_its_equals():
    port = Port(Harbour(confirms_at_once=False, capacity=2))
    open_windows(port, [0, 1], 300)
    port.load(message(0), message(0))
    port.pump()
    for _ in range(100):
        port.load(message(0, 1), message(0, 6))
        port.harbour.answer()
        assert sum(map(len, port.egress._ready)) <= 2
    port.harbour.confirms_at_once = True
    port.harbour.options = port.harbour.options.model_copy(update={"window": 1000})
    port.harbour.answer()
    port.harbour.submitted.clear()
    port.harbour.state = LinkState.DOWN
    port.load(*(message(flow, 1) for _ in range(256) for flow in (0, 1)))
    port.harbour.state = LinkState.UP
    port.pump()
    assert flows(port.harbour.left) == ([0] * 64 + [1] * 64) * 4


# the window


@pytest.mark.parametrize(("window", "capacity"), [(5, 1000), (1000, 5)])
def test_smaller_of_route_window_and_transport_capacity_holds(window: int, capacity: int):
    port = Port(Harbour(confirms_at_once=False, capacity=capacity), window=window)
    port.load(*(message(flow) for flow in range(20)))
    port.pump()
    for _ in range(3):
        assert (port.egress.in_flight, len(port.harbour.open)) == (5, 5)
        port.harbour.answer(0, 1, 2)
    assert port.outcomes() == {"delivered": 9}


def test_smallest_window_of_all_routes_holds_until_that_route_is_gone():
    port = Port(Harbour(confirms_at_once=False), window=10)
    narrow = route_queue("narrow", window=2)
    port.egress.add_queue(narrow)
    port.load(*(message(flow) for flow in range(20)))
    port.pump()
    assert port.egress.in_flight == 2
    port.egress.remove_queue(narrow)
    port.pump()
    assert port.egress.in_flight == 10


def test_nothing_is_sent_while_the_link_is_not_up():
    port = Port()
    port.load(message())
    for state in (LinkState.DOWN, LinkState.ALONE):
        port.harbour.state = state
        port.pump()
        assert port.harbour.left == []
    port.harbour.state = LinkState.UP
    port.pump()
    assert len(port.harbour.left) == 1


# reentrancy


def test_transport_that_confirms_inside_submit_gets_everything_in_order_and_never_recursively():
    port = Port()
    depth = []
    submit = port.harbour.submit

    def counted(parcels, done):
        depth.append(1)
        assert len(depth) == 1
        submit(parcels, done)
        depth.pop()

    port.harbour.submit = counted
    held = port.load(*(message(0, payload=n.to_bytes(2, "big")) for n in range(3000)))
    port.pump()
    assert port.harbour.left == [delivery.message for delivery in held]
    assert port.outcomes() == {"delivered": 3000}
    port.check_books()


def test_message_that_arrives_while_another_is_confirmed_leaves_too():
    port = Port()
    late = [message(1), message(2)]

    def arrive(egress: Egress) -> None:
        if late:
            port.load(late.pop())
        egress.pump(port.clock.ms)

    port.settler.after_settling = arrive
    port.load(message(0))
    port.pump()
    assert sorted(flows(port.harbour.left)) == [0, 1, 2]
    port.check_books()


@given(st.data())
@settings(max_examples=60)
def test_confirmations_in_any_pieces_and_order_settle_each_message_once(data: st.DataObject):
    port = Port(Harbour(confirms_at_once=False, capacity=data.draw(st.integers(1, 8))), retry=PATIENT)
    held = port.load(*(message(n % 3, n % 2, payload=bytes([n])) for n in range(20)))
    port.pump()
    for _ in range(400):
        port.check_books()
        if not port.queue.messages:
            break
        if not port.harbour.open:
            port.wind(101)
            continue
        chosen = data.draw(
            st.lists(st.integers(0, len(port.harbour.open) - 1), min_size=1, max_size=len(port.harbour.open), unique=True)
        )
        port.harbour.answer(*chosen, error=data.draw(st.sampled_from([None, None, NOT_NOW])))
    else:
        port.harbour.confirms_at_once = True
        while port.harbour.open:
            port.harbour.answer()
        port.wind(101)
    assert port.outcomes() == {"delivered": 20}
    assert all(delivery.received.acknowledged for delivery in held)
    port.check_books()


# refusals


def test_refused_flow_goes_on_one_at_a_time_so_that_nothing_overtakes_it_twice():
    port = Port(Harbour(confirms_at_once=False), retry=PATIENT)
    open_windows(port, [0])
    first, *others = port.load(*(message(0, payload=bytes([n])) for n in range(100)))
    del others[98:]
    port.pump()
    port.load(*(message(0, payload=b"later") for _ in range(100)))
    port.harbour.answer(0, error=NOT_NOW)
    port.harbour.answer()
    port.harbour.submitted.clear()
    for _ in range(5):
        port.wind(101)
        assert port.harbour.left[-1] == first.message
        assert len(port.harbour.open) == 1
        port.harbour.answer(error=NOT_NOW)
    assert set(port.harbour.left) == {first.message}
    port.wind(101)
    port.harbour.answer()
    assert port.harbour.left[-1].payload == b"later"


def test_back_off_ends_when_its_time_has_come_and_not_before():
    port = Port(retry={"initial_ms": 500, "factor": 2, "max_ms": 10_000, "jitter": 0, "attempts": 10})
    port.harbour.verdict = lambda sent: NOT_NOW
    port.load(message())
    port.pump()
    for wait_ms in (500, 1000, 2000):
        before = len(port.harbour.left)
        port.wind(wait_ms - 1)
        assert len(port.harbour.left) == before
        port.wind(1)
        assert len(port.harbour.left) == before + 1
    assert port.queue.stats.retries == 4


def test_permanent_refusal_is_the_end_at_once_and_the_flow_goes_on():
    port = Port()
    port.harbour.verdict = lambda sent: NEVER if sent.payload == b"bad" else None
    port.load(message(payload=b"good"), message(payload=b"bad"), message(payload=b"good too"))
    port.pump()
    assert [m.payload for m in port.harbour.left] == [b"good", b"bad", b"good too"]
    assert port.queue.stats.outcomes == {
        (Outcome.DELIVERED, UCode.OK): 2,
        (Outcome.DEAD_LETTERED, UCode.PERMISSION_DENIED): 1,
    }
    assert port.queue.stats.retries == 0


def test_attempts_run_out_for_one_message_and_the_next_has_all_of_its_own():
    port = Port(retry={"initial_ms": 10, "factor": 1, "max_ms": 10, "jitter": 0, "attempts": 3})
    port.harbour.verdict = lambda sent: NOT_NOW
    port.load(message(payload=b"1"), message(payload=b"2"))
    port.pump()
    for _ in range(10):
        port.wind(11)
    assert [m.payload for m in port.harbour.left] == [b"1"] * 3 + [b"2"] * 3
    assert port.outcomes() == {"dead_lettered": 2}
    port.check_books()


# lost links


def test_lost_link_puts_everything_back_in_order_without_an_attempt():
    port = Port(Harbour(confirms_at_once=False), retry={"attempts": 1, "jitter": 0})
    open_windows(port, [0, 1])
    held = port.load(*(message(n % 2, payload=bytes([n])) for n in range(20)))
    port.pump()
    for _ in range(3):
        port.harbour.lose()
        port.check_books()
        assert port.egress.in_flight == 0
        port.harbour.submitted.clear()
        port.harbour.state = LinkState.UP
        port.pump()
    for flow in (0, 1):
        expected = [delivery.message for delivery in held if flows([delivery.message]) == [flow]]
        assert [m for m in port.harbour.left if flows([m]) == [flow]] == expected
    port.harbour.answer()
    assert port.queue.stats.retries == 0
    assert port.queue.messages == 0


def test_message_expired_while_it_was_away_is_not_sent_again():
    port = Port(Harbour(confirms_at_once=False))
    port.load(message(ttl=100))
    port.pump()
    port.harbour.lose()
    port.clock.wind(101)
    port.harbour.state = LinkState.UP
    port.pump()
    assert len(port.harbour.left) == 1
    assert port.outcomes() == {"expired": 1}


# faults


def test_transport_that_raises_half_way_costs_the_rest_an_attempt_and_no_message(caplog: pytest.LogCaptureFixture):
    port = Port(retry=PATIENT)
    open_windows(port, [0])
    port.harbour.fail_at = 3
    held = port.load(*(message(0, payload=bytes([n])) for n in range(10)))
    with caplog.at_level(logging.ERROR):
        port.pump()
    assert [record.msg.split()[0] for record in caplog.records] == ["submit_failed"]
    assert [d.received.acknowledged for d in held] == [True] * 3 + [False] * 7
    assert port.queue.stats.retries == 7
    port.check_books()
    port.harbour.submitted.clear()
    port.wind(100)
    assert port.harbour.left == [d.message for d in held[3:]]
    assert port.outcomes()["delivered"] == 110
    port.check_books()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("error", [None, NOT_NOW, NEVER, LinkLostError()])
def test_late_word_about_what_a_faulty_transport_had_taken_is_not_counted_twice(again: bool, error):
    port = Port(Harbour(confirms_at_once=False), retry=PATIENT)
    open_windows(port, [0])
    port.harbour.fail_at = 3
    held = port.load(*(message(0, payload=bytes([n])) for n in range(5)))
    port.pump()
    assert len(port.harbour.open) == 3
    stale, port.harbour.open = port.harbour.open, []
    if again:  # they are on their way once more, and settled, when the word comes
        port.wind(100)
        for _ in range(20):
            if port.harbour.open:
                port.harbour.answer()
    stale[0][1]([parcel for parcel, _ in stale], error)
    port.check_books()
    for _ in range(20):
        port.wind(100)
        for _ in range(20):
            if port.harbour.open:
                port.harbour.answer()
    port.check_books()
    assert all(d.received.acknowledged for d in held)
    assert port.queue.messages == port.egress.in_flight == 0
    assert port.outcomes() == {"delivered": 105}


# time


def test_tick_settles_what_expired_behind_a_parked_lane():
    port = Port()
    (delivery,) = port.load(message(ttl=100))
    port.egress.park(delivery.lane, Park.STOPPED)
    port.pump()
    port.wind(100)
    assert port.outcomes() == {}
    port.wind(1)
    assert port.outcomes() == {"expired": 1}
    assert port.harbour.left == []


def test_expired_are_passed_over_without_using_the_window():
    port = Port(Harbour(confirms_at_once=False, capacity=2))
    open_windows(port, [0])
    port.load(*(message(0, ttl=10) for _ in range(100)), message(0), message(0), message(0))
    port.clock.wind(11)
    port.pump()
    assert port.egress.in_flight == 2
    assert port.outcomes() == {"delivered": 100, "expired": 100}


def test_lane_goes_on_only_when_the_last_reason_to_stand_still_is_gone():
    port = Port()
    (delivery,) = port.load(message())
    port.egress.park(delivery.lane, Park.ABSENT)
    port.egress.park(delivery.lane, Park.STOPPED)
    port.pump()
    port.egress.unpark(delivery.lane, Park.ABSENT)
    port.pump()
    assert port.harbour.left == []
    port.egress.unpark(delivery.lane, Park.STOPPED)
    port.pump()
    assert port.harbour.left == [delivery.message]


def test_queue_without_routes_has_no_window():
    port = Port()
    port.egress.remove_queue(port.queue)
    assert port.egress.window == 0
    assert port.clock.ms == NOW_MS
