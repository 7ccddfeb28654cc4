"""An ingress by itself: the way in from `vehicle`, with routes to `cloud` and `phone` that lead into queues of their own."""

from collections.abc import Callable

from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.inbound.receiving import Receiving
from streamer.delivery.lanes.lane import Delivery
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.outbound.egress import Egress
from streamer.delivery.pump import Pump
from streamer.delivery.stats import RouteStats
from streamer.routing.interest import Interest
from streamer.routing.table import RoutingTable, TableRoute
from streamer.transports.base import LinkState
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri
from tests.unit.delivery.custody_harness import FleetingReceived
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.messages import queue_policy, topic
from tests.unit.delivery.settler_harness import SettlerHarness

EVERY_TOPIC = UUri("veh1", 0xFFFF_FFFF, 0xFF, 0xFFFF)
CLOUD_APP, PHONE_APP = UUri("fleet", 0xC, 1, 0), UUri("phone1", 0xC, 1, 0)
AUTHORITIES: dict[str, tuple[str, ...]] = {"vehicle": ("veh1",), "cloud": ("*",), "phone": ("phone1",)}


class SourceTransport(FakeTransport):
    """``log``: the calls that pause and resume receiving."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def set_receiving(self, is_receiving: bool) -> None:
        self.log.append("resume" if is_receiving else "pause")


class IngressHarness(SettlerHarness):
    """Every topic goes to `cloud`, and topic 1 to `phone` as well. The links are down unless the test brings them up.

    ``timers``: what is to be called after so many seconds.
    """

    def __init__(self, **keys: object) -> None:
        super().__init__()
        self.interest = Interest()
        self.pump = Pump(self.clock)
        self.source = SourceTransport()
        self.flows = self.source.context.flows
        self.transports = {"cloud": FakeTransport(), "phone": FakeTransport()}
        self.egresses: dict[str, Egress] = {}
        self.routes: dict[str, RouteQueue] = {}
        for target, transport in self.transports.items():
            transport.state = LinkState.DOWN
            egress = Egress(target, transport, self.settler, self.custody, self.clock, lambda: 0.5, self.pump)
            self.egresses[target] = egress
            queue = RouteQueue(target, "vehicle", target, queue_policy(**keys), RouteStats(), egress, self.custody.number)
            egress.add_queue(queue)
            self.routes[target] = queue
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.receiving = Receiving("vehicle", self.source, lambda *timer: self.timers.append(timer), self.clock)
        self.ingress = Ingress(
            "vehicle",
            self.flows,
            self.receiving,
            self.settler,
            self.seen,
            self.clock,
            self.custody,
            self.pump,
            self.interest,
        )
        self.use({"cloud": (EVERY_TOPIC,), "phone": (topic(1),)})

    @property
    def cloud(self) -> RouteQueue:
        return self.routes["cloud"]

    @property
    def phone(self) -> RouteQueue:
        return self.routes["phone"]

    def use(self, publish: dict[str, tuple[UUri, ...]]) -> None:
        """Have these routes, with their patterns, from now on."""
        policy = queue_policy()
        routes = tuple(
            TableRoute(target, "vehicle", target, patterns, ("fleet", "backup"), policy)
            for target, patterns in publish.items()
        )
        table = RoutingTable("gateway", AUTHORITIES, routes, frozenset())
        self.ingress.use(table, {target: (self.routes[target], self.egresses[target]) for target in publish})

    def receive(self, *messages: UMessage, is_kept_by_source: bool = True) -> list[MemoryReceived]:
        """Have messages arrive in one batch."""
        made = MemoryReceived if is_kept_by_source else FleetingReceived
        batch = [made(message) for message in messages]
        self.ingress.on_receive_batch(batch)
        return batch

    def waiting(self, route: str = "cloud") -> list[UMessage]:
        return [delivery.message for delivery in self.routes[route].waiting()]

    def settle_oldest(self, route: str = "cloud") -> Delivery:
        """Settle the oldest message of a route as delivered, and run the pump."""
        queue = self.routes[route]
        oldest = min(queue.waiting(), key=lambda delivery: delivery.seq)
        sent: list[Delivery] = []
        oldest.lane.take(1, self.clock.ms, 0.0, sent, [])
        oldest.lane.succeeded()
        self.settler.delivered(sent)
        self.pump.go_on(self.egresses[route])
        return oldest

    def outcomes(self, route: str | None = None) -> dict[str, int]:
        """Outcomes of a route, or of what no route took."""
        stats = self.ingress.unrouted if route is None else self.routes[route].stats
        return {f"{outcome.value} {code.name}": number for (outcome, code), number in stats.outcomes.items()}


def acknowledgements(batch: list[MemoryReceived]) -> list[bool]:
    return [received.acknowledged for received in batch]
