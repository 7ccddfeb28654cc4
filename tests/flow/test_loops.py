"""Loops and duplicates: several routers on the same memory networks, and copies that come the wrong way.

Every message reaches each of its receivers, as often as there are ways to it and no oftener; nobody is told of a failure
that there was not.
"""

import asyncio
import itertools
import tracemalloc
from collections import Counter, deque
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.config import Config
from streamer.router.remember import RememberedIds
from streamer.router.router import Router
from streamer.transports.base import Received, TransportContext
from streamer.transports.memory import MemoryOptions, MemoryReceived, MemoryTransport
from streamer.uprotocol.message import UMessage, UMessageType, notification, publish, request, response
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import new_id
from tests.flow.stage import (
    CLIMATE,
    CLOUD_APP,
    ORDERS,
    START_MS,
    VEHICLE_APP,
    Stage,
    WoundClock,
    configuration,
    three_networks,
)

ANY = "FFFFFFFF/FF/FFFF"
_runs = itertools.count()

# Several routers


class Inlet(MemoryTransport):
    """Lets in what arrives only when told, one by one, so that a test can have networks of any speed."""

    def __init__(self, context: TransportContext, options: MemoryOptions) -> None:
        super().__init__(context, options)
        self.inbox: deque[Received] = deque()

    def inject(self, *batch: Received) -> None:
        self.inbox.extend(batch)

    def let_in(self) -> None:
        self.registry.deliver((self.inbox.popleft(),))


class World:
    """Networks with a uEntity on each, and the routers between them. The endpoints' names are those of the networks."""

    def __init__(self, *configs: Config) -> None:
        self.clock = WoundClock()
        self.run = next(_runs)
        self.networks = {name: self._join(name, "app") for name in sorted({n for c in configs for n in c.endpoints})}
        self.inlets: list[Inlet] = []
        self.routers: list[Router] = []
        for config in configs:
            transports = {name: self._join(name, config.authority) for name in config.endpoints}
            self.inlets += transports.values()
            self.routers.append(Router(config, dict(transports), self.clock, later=lambda after_s, call: None))

    def _join(self, network: str, authority: str) -> Inlet:
        context = TransportContext(network, authority, now_ms=self.clock.wall_ms)
        return Inlet(context, MemoryOptions(bus=f"loops-{self.run}-{network}"))

    async def __aenter__(self) -> "World":
        for app in self.networks.values():
            await app.start()
        for router in self.routers:
            await router.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for transport in (*self.networks.values(), *self.inlets):
            await transport.stop()

    def send(self, network: str, message: UMessage) -> None:
        self.networks[network]._deliver(Parcel(message), lambda parcels, error: None)

    def step(self, choice: int) -> bool:
        """Let one message in at one of the places where some wait; False if none do."""
        ready = [inlet for inlet in self.inlets if inlet.inbox]
        if ready:
            ready[choice % len(ready)].let_in()
        return bool(ready)

    def settle(self) -> None:
        """Let in everything, also what comes of it, until all grace is over."""
        for _ in range(3):
            while self.step(0):
                pass
            self.clock.ms += 1000
            self.clock.s += 1
            for router in self.routers:
                router.tick()
        self.check_books()
        assert not any(inlet.inbox for inlet in self.inlets)

    def kill(self, authority: str) -> None:
        """A router dies, with all that is on its way to it."""
        for inlet in [inlet for inlet in self.inlets if inlet.context.authority == authority]:
            inlet.lose_link()
            self.inlets.remove(inlet)
        self.routers = [router for router in self.routers if router.table.authority != authority]

    def check_books(self) -> None:
        for router in self.routers:
            assert router.unsettled() == 0
            assert not any(len(ingress.strays) for ingress in router.ingresses.values())
            for account in router.accounts():
                assert account.stats.accepted == account.stats.settled + account.queued, account

    def deliveries(self, network: str) -> Counter[bytes]:
        """Id → how often it arrived on a network from elsewhere."""
        return Counter(received.message.id for received in self.networks[network].inbox)

    def sends(self) -> Counter[bytes]:
        """Id → how often any router sent it anywhere."""
        return Counter(message.id for inlet in self.inlets for message in inlet.sent)

    def outcomes(self) -> Counter[str]:
        """Outcome → how often, over all routers."""
        found: Counter[str] = Counter()
        for router in self.routers:
            for account in router.accounts():
                for (outcome, _), number in account.stats.outcomes.items():
                    found[outcome.value] += number
        return found

    def dead_letters(self) -> int:
        return sum(sum(router.reporter.dead_letters.values()) for router in self.routers)


class Parcel:
    def __init__(self, message: UMessage) -> None:
        self.message = message


def streamer(name: str, left: dict[str, list[str]], patterns: dict[str, list[str]] | None = None) -> Config:
    """A streamer between two networks: network → authorities. ``patterns`` are what it publishes from a network."""
    one, two = left
    wide = [f"//*/{ANY}"]
    return Config.model_validate(
        {
            "authority": name,
            "endpoints": {network: {"transport": "memory", "authorities": listed} for network, listed in left.items()},
            "routes": [
                {"from": here, "to": there, "publish": (patterns or {}).get(here, wide)}
                for here, there in ((one, two), (two, one))
            ],
        }
    )


def pair(cloud: str = "b") -> World:
    return World(*(streamer(name, {"a": ["a"], "b": [cloud]}) for name in ("gw1", "gw2")))


def ring() -> World:
    """a – b – c in a row, and a shortcut from a to c: two ways between a and c, one between all others."""

    def of(*authorities: str) -> list[str]:
        return [f"//{authority}/{ANY}" for authority in authorities]

    return World(
        streamer("gw1", {"a": ["a"], "b": ["b", "c"]}, {"a": of("a"), "b": of("b", "c")}),
        streamer("gw2", {"b": ["a", "b"], "c": ["c"]}, {"b": of("a", "b"), "c": of("c")}),
        streamer("gw3", {"a": ["a"], "c": ["c"]}, {"a": of("a"), "c": of("c")}),
    )


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


async def play(world: World, traffic: list[tuple[int, int, int]], order: list[int]) -> list[tuple[UMessage, str, str]]:
    """Send messages and let them arrive in the given order; what was sent is returned with its source and sink."""
    names = list(world.networks)
    played = []
    choices = iter(order)
    async with world:
        for kind, where, whereto in traffic:
            source = names[where % len(names)]
            sink = [name for name in names if name != source][whereto % (len(names) - 1)]
            played.append((any_message(kind, source, sink), source, sink))
            world.send(source, played[-1][0])
            for choice in itertools.islice(choices, 4):
                world.step(choice)
        for choice in choices:
            world.step(choice)
        world.settle()
    return played


def check_deliveries(world: World, played: list[tuple[UMessage, str, str]], ways: dict[tuple[str, str], int]) -> None:
    """Every message at each receiver exactly once per way there, and nowhere else."""
    expected: dict[str, Counter[bytes]] = {name: Counter() for name in world.networks}
    for message, source, sink in played:
        receivers = [sink] if message.attributes.sink else [name for name in world.networks if name != source]
        for receiver in receivers:
            expected[receiver][message.id] = ways.get((source, receiver), 1)
    for name, counted in expected.items():
        unsought = {m.id for m, source, sink in played if name not in (source, sink) and m.attributes.sink}
        assert {uuid: n for uuid, n in world.deliveries(name).items() if uuid not in unsought} == counted
    routes = sum(len(router.table.routes) for router in world.routers)
    assert max(world.sends().values()) <= routes
    assert world.dead_letters() == 0
    assert world.outcomes()["rejected"] == world.outcomes()["expired"] == 0


@given(Traffic, Order)
@settings(max_examples=150, deadline=None)
def test_pair_delivers_everything_twice_in_whatever_order_copies_arrive(traffic, order):
    world = pair()
    played = asyncio.run(play(world, traffic, order))
    check_deliveries(world, played, {("a", "b"): 2, ("b", "a"): 2})
    assert world.outcomes()["delivered"] == 2 * len(played)


@given(Traffic, Order)
@settings(max_examples=100, deadline=None)
def test_pair_with_a_side_for_everyone_delivers_everything_twice(traffic, order):
    world = pair(cloud="*")
    played = asyncio.run(play(world, traffic, order))
    check_deliveries(world, played, {("a", "b"): 2, ("b", "a"): 2})


@given(Traffic, Order)
@settings(max_examples=150, deadline=None)
def test_ring_of_three_delivers_everything_once_per_way(traffic, order):
    world = ring()
    played = asyncio.run(play(world, traffic, order))
    ways = {("a", "c"): 2, ("c", "a"): 2}
    check_deliveries(world, played, ways)


@given(Traffic, Order)
@settings(max_examples=50, deadline=None)
def test_ring_of_neighbours_delivers_everything_once(traffic, order):
    near = [("a", "b"), ("b", "c"), ("c", "a")]
    world = World(
        *(streamer(f"gw{n}", {x: [x], y: [y]}, {x: [f"//{x}/{ANY}"], y: [f"//{y}/{ANY}"]}) for n, (x, y) in enumerate(near))
    )
    check_deliveries(world, asyncio.run(play(world, traffic, order)), {})


@given(Traffic, Order)
@settings(max_examples=50, deadline=None)
def test_one_streamer_with_wide_patterns_both_ways_delivers_everything_once(traffic, order):
    world = World(streamer("gw1", {"a": ["a"], "b": ["b"]}))
    check_deliveries(world, asyncio.run(play(world, traffic, order)), {})


@given(Traffic, Order, Order)
@settings(max_examples=100, deadline=None)
def test_pair_of_which_one_dies_at_any_moment_loses_nothing(traffic, before, after):
    world = pair()
    asyncio.run(play_and_kill(world, traffic, before, after))


async def play_and_kill(world: World, traffic: list[tuple[int, int, int]], before: list[int], after: list[int]) -> None:
    """Send everything, let it arrive in the order ``before``, kill one, go on in the order ``after``."""
    async with world:
        expected: dict[str, set[bytes]] = {"a": set(), "b": set()}
        for kind, where, _ in traffic:
            source, sink = ("a", "b") if where % 2 else ("b", "a")
            message = any_message(kind, source, sink)
            expected[sink].add(message.id)
            world.send(source, message)
        for choice in before:
            world.step(choice)
        world.kill("gw1")
        for choice in after:
            world.step(choice)
        world.settle()
        for name, ids in expected.items():
            counted = world.deliveries(name)
            assert counted.keys() == ids
            assert max(counted.values(), default=0) <= 2
        assert world.dead_letters() == 0


async def test_pair_of_which_one_has_lost_a_link_still_delivers_and_reports_nothing():
    """What the other one carries meanwhile comes only as a copy, whose original is never heard."""
    world = pair(cloud="*")
    async with world:
        world.inlets[3].lose_link()  # gw2 on network b
        messages = [any_message(kind, "b", "a") for kind in (1, 2, 3)]
        for message in messages:
            world.send("b", message)
        world.settle()
        assert world.deliveries("a") == Counter(m.id for m in messages)
        assert world.dead_letters() == 0
        assert world.outcomes() == {"delivered": 3, "local": 3}


async def test_request_that_neither_of_a_pair_can_deliver_is_answered_by_both():
    world = pair()
    async with world:
        late = any_message(2, "a", "b")
        world.clock.ms += 60_001
        world.send("a", late)
        world.settle()
        answers = [r.message for r in world.networks["a"].inbox if r.message.attributes.type is UMessageType.RESPONSE]
        assert [answer.attributes.reqid for answer in answers] == [late.id] * 2
        assert len({answer.id for answer in answers}) == 2
        assert world.dead_letters() == 2  # one per streamer, and none about the other one's answer


# One router, and copies that come the wrong way

WIDE = [
    {"from": "vehicle", "to": "cloud", "publish": [f"//*/{ANY}"]},
    {"from": "cloud", "to": "vehicle", "publish": [f"//*/{ANY}"]},
]


@pytest.mark.parametrize("ms", [0, 999])
async def test_copy_that_comes_before_its_original_does_not_suppress_it(ms: int):
    async with Stage(configuration(routes=WIDE)) as stage:
        message = stage.speed()
        (copy,) = stage.arrive("cloud", message)
        assert copy.acknowledged  # it is not ours to deliver, and must not hold up what is
        stage.pass_time(ms)
        stage.arrive("vehicle", message)
        assert stage.sent("cloud") == [message]
        stage.pass_time(1000)
        assert stage.outcomes("vehicle-cloud") == {"delivered": 1}
        assert stage.outcomes("none") == {"duplicate": 1}
        assert stage.dead_letters("cloud") == []


async def test_copy_that_comes_after_its_original_is_a_duplicate_at_once():
    async with Stage(configuration(routes=WIDE)) as stage:
        message = stage.speed()
        stage.transports["cloud"].hold = True
        stage.arrive("vehicle", message)
        (copy,) = stage.arrive("cloud", message)
        assert copy.acknowledged
        assert stage.outcomes("none") == {"duplicate": 1}


async def test_forged_message_is_reported_after_the_grace_and_once_and_suppresses_nothing():
    async with Stage(configuration(routes=WIDE)) as stage:
        message = stage.speed()
        stage.arrive("cloud", message)
        stage.arrive("cloud", message)
        stage.pass_time(999)
        assert stage.dead_letters("cloud") == []
        stage.pass_time(1)
        (letter,) = stage.dead_letters("cloud")
        assert letter.status.code == UCode.UNAUTHENTICATED
        stage.arrive("cloud", message)
        stage.pass_time(1000)
        assert len(stage.dead_letters("cloud")) == 1
        assert stage.outcomes("none") == {"rejected": 1, "duplicate": 2}
        assert stage.sent("vehicle") == []
        stage.arrive("vehicle", message)
        assert stage.sent("cloud") == [message]


async def test_message_of_an_unknown_authority_is_reported_at_once_and_suppresses_nothing():
    config = configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["cloud"]},
        }
    )
    async with Stage(config) as stage:
        real = stage.notify()
        forged = real._replace(attributes=replace(real.attributes, source=UUri("nobody", 1, 1, 0x8001)))
        stage.arrive("vehicle", forged, forged)
        assert [letter.status.code for letter in stage.dead_letters("vehicle")] == [UCode.UNAUTHENTICATED]
        assert stage.outcomes("none") == {"rejected": 1, "duplicate": 1}
        stage.arrive("vehicle", real)
        assert stage.sent("cloud") == [real]


FORGERIES = [
    pytest.param(UUri("x", 0xA, 1, 0x8001), UUri("phone1", 1, 1, 0), UCode.PERMISSION_DENIED, id="denied"),
    pytest.param(UUri("x", 0xA, 1, 0), VEHICLE_APP, UCode.INVALID_ARGUMENT, id="invalid"),
]


@pytest.mark.parametrize(("source", "sink", "code"), FORGERIES)
async def test_what_is_denied_or_invalid_is_reported_once_and_suppresses_nothing(source: UUri, sink: UUri, code: UCode):
    async with Stage(three_networks(routes=WIDE)) as stage:
        real = stage.notify()
        forged = real._replace(attributes=replace(real.attributes, source=source, sink=sink))
        stage.arrive("cloud", forged, forged)
        assert [letter.status.code for letter in stage.dead_letters("cloud")] == [code]
        assert stage.outcomes("none") == {"rejected": 1, "duplicate": 1}
        stage.arrive("vehicle", real)
        assert stage.sent("cloud") == [real]
        stage.arrive("cloud", forged)  # of what has been carried, whatever else has its id is a copy
        assert stage.outcomes("none") == {"rejected": 1, "duplicate": 2}


async def test_copy_that_has_reached_its_sink_by_another_way_is_no_failure():
    async with Stage() as stage:
        (copy,) = stage.arrive("vehicle", stage.ask())
        assert copy.acknowledged
        stage.pass_time(1000)
        assert stage.outcomes("none") == {"local": 1}
        assert stage.sent("vehicle") == stage.sent("cloud") == []
        assert stage.dead_letters("vehicle") == []


async def test_copy_of_a_message_that_is_held_back_is_a_duplicate():
    routes = [WIDE[0] | {"queue": {"messages": 1}}, WIDE[1]]
    async with Stage(configuration(routes=routes)) as stage:
        stage.transports["cloud"].lose_link()
        messages = [stage.speed() for _ in range(3)]
        stage.arrive("vehicle", *messages)
        stage.arrive("cloud", *messages)
        stage.pass_time(1000)
        assert stage.dead_letters("cloud") == []
        assert stage.outcomes("none") == {"duplicate": 3}
        stage.transports["cloud"].restore_link()
        assert stage.sent("cloud") == messages


async def test_original_that_is_forgotten_before_the_grace_ends_is_seen_in_time():
    async with Stage(configuration(routes=WIDE, remember={"ids": 10, "seconds": 600})) as stage:
        message = stage.speed()
        stage.arrive("cloud", message)
        stage.arrive("vehicle", message)
        for _ in range(100):
            stage.arrive("vehicle", stage.speed())
        stage.pass_time(1000)
        assert stage.dead_letters("cloud") == []
        assert stage.outcomes("none") == {"duplicate": 1}


async def test_strays_are_bounded_in_number_and_the_oldest_is_judged_early():
    async with Stage(configuration(routes=WIDE, dead_letter={"queue": {"messages": 100_000}})) as stage:
        first = stage.speed()
        stage.arrive("cloud", first)
        stage.arrive("cloud", *(stage.speed() for _ in range(9_999)))
        assert stage.dead_letters("cloud") == []
        stage.arrive("cloud", stage.speed())
        (letter,) = stage.dead_letters("cloud")
        assert letter.message.attributes.id.lsb == int.from_bytes(first.id[8:], "big")
        assert len(stage.router.ingresses["cloud"].strays) == 10_000
        stage.pass_time(1000)
        assert stage.outcomes("none") == {"rejected": 10_001}


async def test_strays_are_bounded_in_bytes():
    async with Stage(configuration(routes=WIDE)) as stage:
        for _ in range(40):
            stage.arrive("cloud", stage.speed(bytes(1024 * 1024)))
            assert stage.router.ingresses["cloud"].strays.bytes <= 16 * 1024 * 1024
        assert len(stage.dead_letters("cloud")) == 25


async def test_strays_of_a_streamer_that_stops_are_no_failures():
    async with Stage(configuration(routes=WIDE)) as stage:
        stage.arrive("cloud", stage.speed())
        assert await stage.router.drain(0) == 0
        assert stage.outcomes("none") == {"duplicate": 1}
        assert stage.dead_letters("cloud") == []


# One Publish for several authorities


def addressed(message: UMessage, *authorities: str) -> list[UMessage]:
    """Its copies on a network that wants an address."""
    return [message._replace(attributes=replace(message.attributes, sink=everything_at(name))) for name in authorities]


def two_in_the_vehicle(**changes: object) -> Config:
    return configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1", "trailer1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        **changes,
    )


async def test_publish_for_two_authorities_behind_one_endpoint_arrives_there_once():
    async with Stage(two_in_the_vehicle(), addressed=("cloud",)) as stage:
        order = stage.speed(source=ORDERS)
        first, second = stage.arrive("cloud", *addressed(order, "veh1", "trailer1"))
        assert stage.sent("vehicle") == [order]
        assert stage.outcomes("cloud-vehicle") == {"delivered": 1, "duplicate": 1}
        assert stage.outcomes("none") == {}
        assert first.acknowledged
        assert second.acknowledged
        stage.arrive("cloud", *addressed(order, "trailer1"))  # its own copy again
        assert stage.sent("vehicle") == [order]
        assert stage.outcomes("none") == {"duplicate": 1}


async def test_publish_that_is_redriven_goes_again_where_it_has_gone():
    async with Stage(two_in_the_vehicle(), addressed=("cloud",)) as stage:
        order = stage.speed(source=ORDERS)
        (copy,) = addressed(order, "veh1")
        stage.arrive("cloud", copy)
        assert stage.router.ingresses["cloud"].redrive(copy)
        stage.router.pump()
        assert stage.sent("vehicle") == [order, order]


async def test_second_copy_is_acknowledged_and_the_first_when_it_has_arrived():
    async with Stage(two_in_the_vehicle(), addressed=("cloud",)) as stage:
        stage.transports["vehicle"].hold = True
        first, second = stage.arrive("cloud", *addressed(stage.speed(source=ORDERS), "veh1", "trailer1"))
        assert not first.acknowledged
        assert second.acknowledged
        stage.transports["vehicle"].release_held()
        assert first.acknowledged
        assert not any(stage.router.remembered.young.values())  # nothing but ids is kept


async def test_second_copy_is_taken_where_the_first_found_no_room():
    config = two_in_the_vehicle(routes=[{"from": "cloud", "to": "vehicle", "queue": {"messages": 1, "on_full": "reject"}}])
    async with Stage(config, addressed=("cloud",)) as stage:
        stage.transports["vehicle"].lose_link()
        before, order = stage.speed(source=ORDERS), stage.speed(source=ORDERS)
        stage.arrive("cloud", *addressed(before, "veh1"), *addressed(order, "veh1"))
        stage.transports["vehicle"].restore_link()
        stage.arrive("cloud", *addressed(order, "trailer1"))
        assert stage.sent("vehicle") == [before, order]
        assert stage.outcomes("cloud-vehicle") == {"delivered": 2, "rejected": 1}


async def test_copies_for_authorities_behind_different_endpoints_all_go():
    config = three_networks(routes=[{"from": "cloud", "to": "vehicle"}, {"from": "cloud", "to": "phone"}])
    async with Stage(config, addressed=("cloud",)) as stage:
        order = stage.speed(source=ORDERS)
        stage.arrive("cloud", *addressed(order, "veh1", "phone1"))
        assert stage.sent("vehicle") == stage.sent("phone") == [order]


# Bounds of what is remembered


async def test_ids_are_bounded_in_number_and_memory_however_many_come():
    ids = 2000
    async with Stage(configuration(remember={"ids": ids, "seconds": 600})) as stage:
        sent = stage.transports["cloud"].sent
        base = stage.speed()

        def flood(batches: int) -> None:
            for _ in range(batches):
                batch = [base._replace(id=new_id(stage.clock.ms)) for _ in range(100)]
                stage.transports["vehicle"].inject(*(MemoryReceived(message) for message in batch))
                assert len(stage.router.remembered) <= ids + len(batch)
                stage.router.custody.flush()
                sent.clear()

        flood(100)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            flood(500)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Everything that is remembered now is younger than `before`: this is all that 60 000 messages have left.
        assert after - before < 200 * ids
        assert stage.outcomes("vehicle-cloud") == {"delivered": 60_000}


def test_remembered_id_takes_about_a_hundred_bytes():
    tracemalloc.start()
    try:
        ids = RememberedIds(200_000, 600, 0.0)
        for _ in range(2000):
            ids.turn(0.0)
            for _ in range(100):
                ids.young[new_id(START_MS)] = None
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(ids) < 130


async def test_ids_are_forgotten_in_silence_too():
    async with Stage(configuration(remember={"ids": 1000, "seconds": 60})) as stage:
        stage.arrive("vehicle", stage.notify(sink=CLOUD_APP))
        stage.arrive("cloud", stage.ask(method=CLIMATE), stage.notify(sink=VEHICLE_APP, source=ORDERS))
        assert len(stage.router.remembered) == 3
        stage.pass_time(30_000)
        assert len(stage.router.remembered) == 3
        stage.pass_time(30_000)
        assert len(stage.router.remembered) == 0
