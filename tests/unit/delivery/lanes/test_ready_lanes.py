"""Which lane is served next: by class, round-robin within a class, none below a class whose window is opening."""

from streamer.delivery.lanes.lane import Hold, Lane
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.lanes.ready_lanes import ReadyLanes
from streamer.delivery.stats import RouteStats
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.uri import UUri
from tests.unit.delivery.messages import NOW_MS, FakeOwner, message, push, queue_policy, route_queue

WIDE = 10
NOW_S = 100.0


class Lanes:
    """Lanes of one queue, each with an open window, and the list of those that are ready."""

    def __init__(self) -> None:
        self.queue = route_queue()
        self.ready = ReadyLanes()

    def load(self, flow: int, *levels: int, window: int = WIDE) -> Lane:
        deliveries = [push(self.queue, message(flow, level)) for level in levels]
        lane = deliveries[0].lane
        lane.window = window
        self.ready.mark_ready(lane)
        return lane

    def send(self, lane: Lane, count: int = 1) -> None:
        assert lane.take(count, NOW_MS, 0.0, [], []) == count
        self.ready.mark_ready(lane)

    def order(self, floor: int = 0) -> list[Lane]:
        """Serve lanes until none is left, each of which sends all messages; return them."""
        found = []
        while (lane := self.ready.next(floor, NOW_S)) is not None:
            found.append(lane)
            lane.take(WIDE, NOW_MS, 0.0, [], [])
        return found


def test_a_higher_class_goes_first_and_lanes_of_one_class_take_turns() -> None:
    lanes = Lanes()
    low, first, second = lanes.load(0, 1), lanes.load(1, 4), lanes.load(2, 4)
    assert lanes.order() == [first, second, low]


def test_a_lane_is_listed_once_however_often_it_is_marked_ready() -> None:
    lanes = Lanes()
    lane = lanes.load(0, 1)
    assert lanes.ready.mark_ready(lane)
    assert lanes.order() == [lane]


def test_a_lane_moves_up_when_a_higher_class_joins_it_and_its_old_entry_is_passed_over() -> None:
    lanes = Lanes()
    other, lane = lanes.load(0, 3), lanes.load(1, 1)
    push(lanes.queue, message(1, 6))
    lanes.ready.mark_ready(lane)
    assert lanes.order() == [lane, other]


def test_a_lane_whose_high_message_has_gone_is_served_in_the_lower_class() -> None:
    lanes = Lanes()
    lane = lanes.load(0, 6, 1)
    other = lanes.load(1, 3)
    high = lane.waiting()[0]
    lane.drop(high)
    assert lanes.order() == [other, lane]


def test_a_held_or_empty_lane_has_no_turn() -> None:
    lanes = Lanes()
    held, empty = lanes.load(0, 1), lanes.load(1, 1)
    held.set_hold(Hold.PAUSED)
    empty.drop(empty.waiting()[0])
    assert lanes.order() == []
    assert not lanes.ready.mark_ready(held)
    assert not lanes.ready.mark_ready(empty)


def test_an_opening_window_blocks_the_lower_classes_until_it_is_confirmed() -> None:
    lanes = Lanes()
    lane = lanes.load(0, 5, 5, window=1)
    low, high = lanes.load(1, 2), lanes.load(2, 6)
    lanes.send(lane)
    assert lanes.ready.floor() == 5
    assert lanes.order(lanes.ready.floor()) == [high]
    lane.succeeded()
    lanes.ready.mark_ready(lane)
    assert lanes.ready.floor() == 0
    assert lanes.order() == [lane, low]


def test_a_lane_that_cannot_send_for_another_reason_blocks_nobody() -> None:
    lanes = Lanes()
    lane = lanes.load(0, 5, 5, window=1)
    lanes.send(lane)
    assert lanes.ready.floor() == 5
    lane.set_hold(Hold.ABSENT)
    assert lanes.ready.floor() == 0


def test_a_lane_that_waits_for_what_was_in_flight_when_its_receiver_was_lost_blocks_nobody() -> None:
    lanes = Lanes()
    lane = lanes.load(0, 5, 5, window=1)
    lanes.send(lane)
    lane.unconfirmed_in_flight = lane.in_flight
    assert not lanes.ready.mark_ready(lane)
    assert lanes.ready.floor() == 0
    lane.succeeded()
    assert lanes.ready.mark_ready(lane)
    assert lanes.order() == [lane]


# shares


def sent_at_a_share(lower_share: float, levels: list[int], count: int) -> list[int]:
    """The classes of the first messages sent, with a flow in each class that never ends."""
    lanes = Lanes()
    lanes.ready = ReadyLanes(lower_share)
    found: list[int] = []
    for flow, level in enumerate(levels):
        lanes.load(flow, *[level] * count, window=count)
    for _ in range(count):
        lane = lanes.ready.next(0, NOW_S)
        assert lane is not None
        found.append(lane.highest_class)
        size = lane.bytes
        assert lane.take(1, NOW_MS, 0.0, [], []) == 1
        if lanes.ready.is_contested:  # else nobody tells
            lanes.ready.sent(size - lane.bytes)
        lanes.ready.mark_ready(lane)
    return found


def test_the_classes_below_the_highest_have_their_share_and_so_have_those_below_them() -> None:
    sent = sent_at_a_share(0.25, [6, 3, 0], 3200)[1600:]
    assert (sent.count(6), sent.count(3), sent.count(0)) == (1200, 300, 100)
    assert sent[:8].count(6) == 6


def test_a_short_burst_of_the_highest_class_stays_together() -> None:
    sent = sent_at_a_share(0.2, [6, 0], 100)
    assert sent[:33] == [6] * 32 + [0]  # until the others are owed eight small messages
    assert sent[33:43] == [6, 6, 6, 6, 0] * 2


def test_a_lower_class_alone_with_the_highest_has_all_of_the_share() -> None:
    sent = sent_at_a_share(0.5, [6, 0], 200)[100:]
    assert (sent.count(6), sent.count(0)) == (50, 50)


def test_a_class_alone_owes_nothing_to_those_that_come_later() -> None:
    lanes = Lanes()
    lanes.ready = ReadyLanes(0.25)
    high = lanes.load(0, *[6] * 100, window=100)
    for _ in range(50):
        assert lanes.ready.next(0, NOW_S) is high
        size = high.bytes
        lanes.send(high)
        lanes.ready.sent(size - high.bytes)
    lanes.load(1, 1)
    assert lanes.ready.next(0, NOW_S) is high


def test_what_the_lower_classes_are_owed_is_forgotten_once_none_of_them_waits() -> None:
    lanes = Lanes()
    lanes.ready = ReadyLanes(0.25)
    high, low = lanes.load(0, 6, 6, 6, 6), lanes.load(1, 1)
    assert lanes.ready.next(0, NOW_S) is high
    lanes.send(high)
    lanes.ready.sent(1_000_000)
    for lane in (low, high):  # the lower class has its turn, and then has nothing
        assert lanes.ready.next(0, NOW_S) is lane
        lanes.send(lane)
        lanes.ready.sent(500)
    lanes.load(2, 1)
    assert lanes.ready.next(0, NOW_S) is high


# groups


def of(authority: str, number: int) -> UMessage:
    return publish(NOW_MS, UUri(authority, 1, 1, 0x8000 + number))


def turns(queue: RouteQueue, arrivals: list[tuple[str, int]], now_s: float = NOW_S) -> list[str]:
    """Return the authorities in the order in which they are served; each lane has one message."""
    ready = ReadyLanes()
    queue.quotas.regroup()
    for authority, number in arrivals:
        ready.mark_ready(push(queue, of(authority, number)).lane)
    found = []
    while (lane := ready.next(0, now_s)) is not None:
        found.append(lane.key[0].authority)
        lane.take(1, NOW_MS, 0.0, [], [])
        queue.quotas.spend(lane.group, 600, now_s)
    return found


def test_authorities_take_turns_whatever_the_number_of_their_lanes() -> None:
    arrivals = [("many", number) for number in range(4)] + [("few", 0), ("one", 0), ("few", 1)]
    assert turns(route_queue(), arrivals) == ["many", "few", "one", "many", "few", "many", "many"]


def strangers_and(*named: str, **keys: object) -> RouteQueue:
    return RouteQueue("up", "vehicle", "cloud", queue_policy(**keys), RouteStats(), FakeOwner(), named=named)


def test_unlisted_authorities_are_served_round_robin_as_one_group() -> None:
    arrivals = [("a", 0), ("b", 0), ("c", 0), ("known", 0), ("known", 1), ("a", 1)]
    assert turns(strangers_and("known"), arrivals) == ["a", "known", "b", "known", "c", "a"]


def test_whoever_is_at_its_rate_is_passed_over_until_it_is_not() -> None:
    queue = strangers_and("known", rate_per_authority={"messages": 1})
    ready = ReadyLanes()
    for authority in ("known", "known", "a", "a", "b"):
        ready.mark_ready(push(queue, of(authority, len(queue.lanes))).lane)

    def next_at(now_s: float) -> str | None:
        ready.wake(now_s)
        lane = ready.next(0, now_s)
        if lane is None:
            return None
        lane.take(1, NOW_MS, 0.0, [], [])
        queue.quotas.spend(lane.group, 600, now_s)
        return lane.key[0].authority

    assert [next_at(0.0) for _ in range(5)] == ["known", "a", "b", None, None]
    assert queue.stats.limited == 2
    assert next_at(0.9) is None
    assert sorted(str(next_at(1.0)) for _ in range(2)) == ["a", "known"]
    assert next_at(1.0) is None


def test_a_lane_that_comes_while_its_group_is_parked_is_served_later() -> None:
    queue = strangers_and(rate={"messages": 1})
    ready = ReadyLanes()
    first, second = (push(queue, of("a", number)).lane for number in range(2))
    ready.mark_ready(first)
    ready.mark_ready(second)
    assert ready.next(0, 0.0) is first
    first.take(1, NOW_MS, 0.0, [], [])
    queue.quotas.spend(first.group, 600, 0.0)
    assert ready.next(0, 0.0) is None
    third = push(queue, of("b", 9)).lane
    ready.mark_ready(third)
    assert ready.next(0, 0.5) is None
    ready.wake(1.0)
    assert ready.next(0, 1.0) is second
