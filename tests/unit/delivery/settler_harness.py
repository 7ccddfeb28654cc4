"""A `Settler` with everything that it reports outcomes to, and queues of deliveries to settle."""

from streamer.config.models import QueueBounds
from streamer.delivery.lanes.lane import Delivery
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.observers import OutcomeObserver
from streamer.delivery.outcomes.failure_notices import FailureNotices, NoticeOptions
from streamer.delivery.outcomes.settle import Settler
from streamer.delivery.seen import key_of
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from tests.unit.delivery.custody_harness import CustodyHarness
from tests.unit.delivery.fake_observer import FakeObserver
from tests.unit.delivery.messages import FakeOwner, queue_policy


class SettlerHarness:
    """A route ``up`` from `vehicle` to `cloud`, and notices at both."""

    def __init__(
        self, held: CustodyHarness | None = None, endpoints: tuple[str, ...] = ("origin",), most_notices: int = 100
    ) -> None:
        self.held = held or CustodyHarness()
        self.clock, self.seen, self.custody = self.held.clock, self.held.seen, self.held.custody
        self.queue = self.held.queue
        options = NoticeOptions("gateway", 0x8001, endpoints, QueueBounds(messages=most_notices), queue_policy())
        self.observer = FakeObserver()
        self.observers: list[OutcomeObserver] = [self.observer]
        self.notices = FailureNotices(options, self.custody, self.clock, self.observers)
        self.owner = FakeOwner()
        for name, authorities in (("vehicle", ("veh1",)), ("cloud", ("*",))):
            self.notices.add_endpoint(name, self.owner, authorities, False)
        self.settler = Settler(self.clock, self.seen, self.custody, self.notices, self.observers)
        self.held.owner.fail = self.owner.fail = self.settler.fail

    def accept(self, message: UMessage, queue: RouteQueue | None = None) -> Delivery:
        return self.held.accept(message, queue)

    def in_flight(self, *messages: UMessage) -> list[Delivery]:
        """Accept messages and have them answered: they are in flight until they are settled."""
        sent: list[Delivery] = []
        for lane in dict.fromkeys(self.accept(each).lane for each in messages):
            lane.take(len(messages), self.clock.ms, 0.0, sent, [])
        for delivery in sent:
            delivery.lane.succeeded()
        return sent

    def arrived(self, message: UMessage) -> MemoryReceived:
        """A message that did not become a delivery yet."""
        received = MemoryReceived(message)
        self.seen.remember_pending(key_of(message), received)
        return received

    def notice_queue(self, name: str) -> RouteQueue:
        (found,) = (queue for queue in self.notices.queues() if queue.name == name)
        return found

    def letters(self) -> list[pb.DeadLetter]:
        """The dead letters that wait to be sent at `vehicle`."""
        waiting = self.notice_queue("dead-letter/vehicle").waiting()
        return [pb.DeadLetter.FromString(delivery.message.payload or b"") for delivery in waiting]

    def answers(self) -> list[UMessage]:
        waiting = [delivery.message for delivery in self.notice_queue("rpc-error/vehicle").waiting()]
        assert all(answer.attributes.type is UMessageType.RESPONSE for answer in waiting)
        return waiting
