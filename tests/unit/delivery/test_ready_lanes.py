"""Which lane is next: class before turn, turns within a class, nothing below a class whose window is opening."""

from streamer.delivery.lane import Hold, Lane
from streamer.delivery.ready_lanes import ReadyLanes
from tests.unit.delivery.messages import NOW_MS, message, push, route_queue

WIDE = 10


class Lanes:
    """Lanes of one queue, each with an open window, and the list of those that are ready."""

    def __init__(self) -> None:
        self.queue = route_queue()
        self.ready = ReadyLanes()

    def load(self, flow: int, *levels: int, window: int = WIDE) -> Lane:
        deliveries = [push(self.queue, message(flow, level)) for level in levels]
        lane = deliveries[0].lane
        lane.window = window
        self.ready.file(lane)
        return lane

    def send(self, lane: Lane, count: int = 1) -> None:
        assert lane.take(count, NOW_MS, [], []) == count
        self.ready.file(lane)

    def order(self, floor: int = 0) -> list[Lane]:
        """Every lane whose turn comes until none is left, each sending all that it has."""
        found = []
        while (lane := self.ready.next(floor)) is not None:
            found.append(lane)
            lane.take(WIDE, NOW_MS, [], [])
        return found


def test_a_higher_class_goes_first_and_lanes_of_one_class_take_turns() -> None:
    lanes = Lanes()
    low, first, second = lanes.load(0, 1), lanes.load(1, 4), lanes.load(2, 4)
    assert lanes.order() == [first, second, low]


def test_a_lane_is_listed_once_however_often_it_is_filed() -> None:
    lanes = Lanes()
    lane = lanes.load(0, 1)
    assert lanes.ready.file(lane)
    assert lanes.order() == [lane]


def test_a_lane_moves_up_when_a_higher_class_joins_it_and_its_old_entry_is_passed_over() -> None:
    lanes = Lanes()
    other, lane = lanes.load(0, 3), lanes.load(1, 1)
    push(lanes.queue, message(1, 6))
    lanes.ready.file(lane)
    assert lanes.order() == [lane, other]


def test_a_lane_whose_high_message_has_gone_takes_its_turn_in_the_lower_class() -> None:
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
    assert not lanes.ready.file(held)
    assert not lanes.ready.file(empty)


def test_an_opening_window_blocks_the_lower_classes_until_it_is_confirmed() -> None:
    lanes = Lanes()
    lane = lanes.load(0, 5, 5, window=1)
    low, high = lanes.load(1, 2), lanes.load(2, 6)
    lanes.send(lane)
    assert lanes.ready.floor() == 5
    assert lanes.order(lanes.ready.floor()) == [high]
    lane.confirmed()
    lanes.ready.file(lane)
    assert lanes.ready.floor() == 0
    assert lanes.order() == [lane, low]


def test_a_lane_that_cannot_send_for_another_reason_blocks_nobody() -> None:
    lanes = Lanes()
    lane = lanes.load(0, 5, 5, window=1)
    lanes.send(lane)
    assert lanes.ready.floor() == 5
    lane.set_hold(Hold.ABSENT)
    assert lanes.ready.floor() == 0
