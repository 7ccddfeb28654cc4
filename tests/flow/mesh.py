"""Memory networks with several routers between them, which let messages in one by one, in an order that the test decides."""

import itertools
from collections import Counter, deque
from functools import cache

from hypothesis import strategies as st

from streamer.config.models import Config
from streamer.delivery.router import Router
from streamer.features.every import FILE
from streamer.transports.base import MessageParcel, Received, TransportContext
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.uprotocol.message import UMessage, notification, publish, request, response
from streamer.uprotocol.uri import UUri
from tests.clock import START_MS, FakeClock

ANY = "FFFFFFFF/FF/FFFF"
_runs = itertools.count()


class SteppedTransport(MemoryTransport):
    """Lets in what arrives only when told, one by one, so that a test can have networks of any speed."""

    def __init__(self, context: TransportContext, options: MemoryOptions) -> None:
        super().__init__(context, options)
        self.inbox: deque[Received] = deque()

    def inject(self, *batch: Received) -> None:
        self.inbox.extend(batch)

    def deliver_next(self) -> None:
        self.registry.deliver((self.inbox.popleft(),))


class Mesh:
    """Networks with a uEntity on each, and the routers between them. The endpoints' names are those of the networks."""

    def __init__(self, *configs: Config) -> None:
        self.clock = FakeClock()
        self.run = next(_runs)
        self.networks = {name: self._join(name, "app") for name in sorted({n for c in configs for n in c.endpoints})}
        self.transports: list[SteppedTransport] = []
        self.routers: list[Router] = []
        for config in configs:
            transports = {name: self._join(name, config.authority) for name in config.endpoints}
            self.transports += transports.values()
            self.routers.append(Router(config, dict(transports), self.clock, later=lambda after_s, call: None))

    def _join(self, network: str, authority: str) -> SteppedTransport:
        context = TransportContext(network, authority, now_ms=self.clock.wall_ms)
        return SteppedTransport(context, MemoryOptions(bus=f"loops-{self.run}-{network}"))

    async def __aenter__(self) -> "Mesh":
        for app in self.networks.values():
            await app.start()
        for router in self.routers:
            await router.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for transport in (*self.networks.values(), *self.transports):
            await transport.stop()

    def send(self, network: str, message: UMessage) -> None:
        self.networks[network].submit((MessageParcel(message),), lambda parcels, error: None)

    def step(self, choice: int) -> bool:
        """Let one message in at one of the places where some wait; False if none do."""
        ready = [transport for transport in self.transports if transport.inbox]
        if ready:
            ready[choice % len(ready)].deliver_next()
        return bool(ready)

    def settle(self) -> None:
        """Let in everything, also what comes of it, until all grace is over."""
        for _ in range(3):
            while self.step(0):
                pass
            self.clock.advance(1000)
            for router in self.routers:
                router.tick()
        self.check_books()
        assert not any(transport.inbox for transport in self.transports)

    def kill(self, authority: str) -> None:
        """A router dies, with all that is on its way to it."""
        for transport in [transport for transport in self.transports if transport.context.authority == authority]:
            transport.lose_link()
            self.transports.remove(transport)
        self.routers = [router for router in self.routers if router.table.authority != authority]

    def check_books(self) -> None:
        for router in self.routers:
            assert router.unsettled() == 0
            assert not any(len(ingress.misrouted) for ingress in router.ingresses.values())
            for account in router.accounts():
                assert account.stats.accepted == account.stats.settled + account.queued, account

    def deliveries(self, network: str) -> Counter[bytes]:
        """Id → how often it arrived on a network from elsewhere."""
        return Counter(received.message.id for received in self.networks[network].inbox)

    def sends(self) -> Counter[bytes]:
        """Id → how often any router sent it anywhere."""
        return Counter(message.id for transport in self.transports for message in transport.sent)

    def outcomes(self) -> Counter[str]:
        """Outcome → how often, over all routers."""
        found: Counter[str] = Counter()
        for router in self.routers:
            for account in router.accounts():
                for (outcome, _), number in account.stats.outcomes.items():
                    found[outcome.value] += number
        return found

    def dead_letters(self) -> int:
        return sum(router.notices.made for router in self.routers)


def streamer(name: str, left: dict[str, list[str]], patterns: dict[str, list[str]] | None = None) -> Config:
    """A streamer between two networks: network → authorities. ``patterns`` are what it publishes from a network."""
    one, two = left
    wide = [f"//*/{ANY}"]
    return FILE.model_validate(
        {
            "authority": name,
            "endpoints": {network: {"transport": "memory", "authorities": listed} for network, listed in left.items()},
            "routes": [
                {"from": here, "to": there, "publish": (patterns or {}).get(here, wide)}
                for here, there in ((one, two), (two, one))
            ],
        }
    )


@cache
def pair_configs(cloud: str) -> tuple[Config, ...]:
    """Return the configurations of `pair`, which are the same for all examples."""
    return tuple(streamer(name, {"a": ["a"], "b": [cloud]}) for name in ("gw1", "gw2"))


def pair(cloud: str = "b") -> Mesh:
    return Mesh(*pair_configs(cloud))


@cache
def ring_configs() -> tuple[Config, ...]:
    """Return the configurations of `ring`."""

    def of(*authorities: str) -> list[str]:
        return [f"//{authority}/{ANY}" for authority in authorities]

    return (
        streamer("gw1", {"a": ["a"], "b": ["b", "c"]}, {"a": of("a"), "b": of("b", "c")}),
        streamer("gw2", {"b": ["a", "b"], "c": ["c"]}, {"b": of("a", "b"), "c": of("c")}),
        streamer("gw3", {"a": ["a"], "c": ["c"]}, {"a": of("a"), "c": of("c")}),
    )


def ring() -> Mesh:
    """a – b – c in a row, and a shortcut from a to c: two ways between a and c, one between all others."""
    return Mesh(*ring_configs())


def any_message(kind: int, source: str, sink: str) -> UMessage:
    """A message of one of the four kinds; a Publish goes to everybody."""
    if kind == 0:
        return publish(START_MS, UUri(source, 0xA, 1, 0x8001), b"publish")
    if kind == 1:
        return notification(START_MS, UUri(source, 0xA, 1, 0x8001), UUri(sink, 0xB, 1, 0), b"notify")
    if kind == 2:
        return request(START_MS, UUri(source, 0xA, 1, 0), UUri(sink, 0xB, 1, 7), 60_000, b"ask")
    return response(START_MS, request(START_MS, UUri(sink, 0xB, 1, 0), UUri(source, 0xA, 1, 7), 60_000), b"answer")


Traffic = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=12)
Order = st.lists(st.integers(0, 5), max_size=80)


async def play(mesh: Mesh, traffic: list[tuple[int, int, int]], order: list[int]) -> list[tuple[UMessage, str, str]]:
    """Send messages and let them arrive in the given order; what was sent is returned with its source and sink."""
    names = list(mesh.networks)
    played = []
    choices = iter(order)
    async with mesh:
        for kind, where, whereto in traffic:
            source = names[where % len(names)]
            sink = [name for name in names if name != source][whereto % (len(names) - 1)]
            played.append((any_message(kind, source, sink), source, sink))
            mesh.send(source, played[-1][0])
            for choice in itertools.islice(choices, 4):
                mesh.step(choice)
        for choice in choices:
            mesh.step(choice)
        mesh.settle()
    return played


def check_deliveries(mesh: Mesh, played: list[tuple[UMessage, str, str]], ways: dict[tuple[str, str], int]) -> None:
    """Every message at each receiver exactly once per way there, and nowhere else."""
    expected: dict[str, Counter[bytes]] = {name: Counter() for name in mesh.networks}
    for message, source, sink in played:
        receivers = [sink] if message.attributes.sink else [name for name in mesh.networks if name != source]
        for receiver in receivers:
            expected[receiver][message.id] = ways.get((source, receiver), 1)
    for name, counted in expected.items():
        unsought = {m.id for m, source, sink in played if name not in (source, sink) and m.attributes.sink}
        assert {uuid: n for uuid, n in mesh.deliveries(name).items() if uuid not in unsought} == counted
    routes = sum(len(router.table.routes) for router in mesh.routers)
    assert max(mesh.sends().values()) <= routes
    assert mesh.dead_letters() == 0
    assert mesh.outcomes()["rejected"] == mesh.outcomes()["expired"] == 0
