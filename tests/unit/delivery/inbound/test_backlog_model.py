"""The backlog against a model: messages for one queue or two, copies, expiry, and room that comes and goes."""

from collections import Counter, deque
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamer.delivery.inbound.backlog import Backlog
from streamer.delivery.lanes.lane import Delivery
from streamer.delivery.lanes.queue import Room, RouteQueue
from streamer.transports.base import Received
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import OVERHEAD_BYTES
from tests.unit.delivery.messages import message, push, route_queue

ROUTES = ((0,), (1,), (0, 1), (1, 0))


@dataclass
class Waiting:
    """What the model knows of a message that waits."""

    received: Received
    queue: int
    position: int


class Admission(RuleBasedStateMachine):
    """An ingress with two queues, as the backlog sees it. ``waiting`` is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog()
        self.queues: list[RouteQueue] = [
            route_queue("narrow", queue={"messages": 2}),
            route_queue("wide", queue={"messages": 4, "bytes": 4 * OVERHEAD_BYTES + 100}),
        ]
        self.inside: list[deque[Delivery]] = [deque(), deque()]
        self.waiting: dict[bytes, Waiting] = {}
        self.positions = 0
        self.routes: dict[bytes, tuple[int, ...]] = {}  # in the order of arrival
        self.entered: list[bytes] = []
        self.expired: Counter[bytes] = Counter()

    @rule(routes=st.sampled_from(ROUTES), size=st.sampled_from((0, 50, 500)))
    def arrive(self, routes: tuple[int, ...], size: int) -> None:
        received = MemoryReceived(message(payload=b"x" * size))
        self.routes[received.message.id] = routes
        self.admit(received, None)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def arrive_again(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.waiting)))
        self.admit(MemoryReceived(self.waiting[key].received.message), None)

    @rule(number=st.integers(0, 1))
    def settle(self, number: int) -> None:
        if self.inside[number]:
            delivery = self.inside[number].popleft()
            delivery.lane.drop(delivery)
            self.queues[number].leave(delivery)

    @rule(number=st.integers(0, 1))
    def take(self, number: int) -> None:
        expected = self.fitting(number)
        positions = {key: self.waiting.pop(key).position for key in expected}
        taken = self.backlog.take(self.queues[number])
        assert [received.message.id for received in taken] == expected
        for received in taken:
            self.admit(received, positions[received.message.id])

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        keys = data.draw(st.sets(st.sampled_from(list(self.waiting)))) if self.waiting else set()
        expected = sorted((self.waiting.pop(key) for key in keys), key=lambda waiting: waiting.position)
        removed = self.backlog.remove(lambda received: received.message.id in keys)
        assert [(id(received), queue) for received, queue in removed] == [
            (id(waiting.received), self.queues[waiting.queue]) for waiting in expected
        ]
        self.expired.update(keys)

    def fitting(self, number: int) -> list[bytes]:
        """The keys that the model would take for a queue."""
        queue = self.queues[number]
        bounds = queue.policy.queue
        candidates = sorted((w.position, key) for key, w in self.waiting.items() if w.queue == number)
        fitting: list[bytes] = []
        size = queue.bytes
        for _, key in candidates:
            size += self.waiting[key].received.message.size
            has_room = queue.messages + len(fitting) < bounds.messages and size <= bounds.bytes
            if not has_room and (fitting or queue.messages):
                break
            fitting.append(key)
        return fitting

    def admit(self, received: Received, position: int | None) -> None:
        """Do as an ingress: have a message wait for the first queue that has no room."""
        key, size = received.message.id, received.message.size
        for number in self.routes[key]:
            queue = self.queues[number]
            older = [w for w in self.waiting.values() if w.queue == number and (position is None or w.position < position)]
            is_behind = self.backlog.is_behind(key, queue)
            assert is_behind == bool(older or key in self.waiting)
            if is_behind or queue.room_for(size) is Room.NO:
                self.wait(key, received, number, position)
                return
        for number in self.routes[key]:
            self.inside[number].append(push(self.queues[number], received.message))
        self.entered.append(key)

    def wait(self, key: bytes, received: Received, number: int, position: int | None) -> None:
        earlier = self.backlog.add(key, received, self.queues[number])
        if key in self.waiting:
            assert earlier is self.waiting[key].received
            self.waiting[key].received = received
            return
        assert earlier is None
        if position is None:
            self.positions += 1
            position = self.positions
        self.waiting[key] = Waiting(received, number, position)

    @invariant()
    def the_counts_are_exact(self) -> None:
        assert len(self.backlog) == len(self.waiting)
        assert self.backlog.bytes == sum(each.received.message.size for each in self.waiting.values())
        assert set(self.backlog.queues()) == {self.queues[each.queue] for each in self.waiting.values()}

    def teardown(self) -> None:
        """With room for all, every message has entered once or expired once; those of one flow in their order."""
        while self.waiting:
            for number in (0, 1):
                while self.inside[number]:
                    self.settle(number)
                self.take(number)
        assert len(self.backlog) == self.backlog.bytes == 0
        assert Counter(self.entered) + self.expired == Counter(self.routes.keys())
        for routes in ROUTES:
            flow = [key for key in self.routes if self.routes[key] == routes and not self.expired[key]]
            assert [key for key in self.entered if self.routes[key] == routes] == flow


TestAdmission = Admission.TestCase
TestAdmission.settings = settings(stateful_step_count=40, deadline=None)
