"""Loops: several routers on the same memory networks.

Every message reaches each of its receivers, as often as there are ways to it and no oftener; nobody is told of a failure
that there was not.
"""

import asyncio
from collections import Counter

from hypothesis import given, settings

from streamer.config.models import Config
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.status import UCode
from tests.examples import examples
from tests.flow.mesh import (
    ANY,
    Mesh,
    Order,
    Traffic,
    any_message,
    check_deliveries,
    pair,
    pair_configs,
    play,
    ring,
    streamer,
)

NEIGHBOURS = [
    streamer(f"gw{n}", {x: [x], y: [y]}, {x: [f"//{x}/{ANY}"], y: [f"//{y}/{ANY}"]})
    for n, (x, y) in enumerate([("a", "b"), ("b", "c"), ("c", "a")])
]


@given(Traffic, Order)
@settings(max_examples=examples(150), deadline=None)
def test_pair_delivers_everything_twice_in_whatever_order_copies_arrive(
    traffic: list[tuple[int, int, int]], order: list[int]
) -> None:
    mesh = pair()
    played = asyncio.run(play(mesh, traffic, order))
    check_deliveries(mesh, played, {("a", "b"): 2, ("b", "a"): 2})
    assert mesh.outcomes()["delivered"] == 2 * len(played)


@given(Traffic, Order)
@settings(max_examples=examples(100), deadline=None)
def test_pair_with_a_side_for_everyone_delivers_everything_twice(
    traffic: list[tuple[int, int, int]], order: list[int]
) -> None:
    mesh = pair(cloud="*")
    played = asyncio.run(play(mesh, traffic, order))
    check_deliveries(mesh, played, {("a", "b"): 2, ("b", "a"): 2})


@given(Traffic, Order)
@settings(max_examples=examples(150), deadline=None)
def test_ring_of_three_delivers_everything_once_per_way(traffic: list[tuple[int, int, int]], order: list[int]) -> None:
    mesh = ring()
    played = asyncio.run(play(mesh, traffic, order))
    ways = {("a", "c"): 2, ("c", "a"): 2}
    check_deliveries(mesh, played, ways)


@given(Traffic, Order)
@settings(max_examples=examples(50), deadline=None)
def test_ring_of_neighbours_delivers_everything_once(traffic: list[tuple[int, int, int]], order: list[int]) -> None:
    mesh = Mesh(*NEIGHBOURS)
    check_deliveries(mesh, asyncio.run(play(mesh, traffic, order)), {})


@given(Traffic, Order)
@settings(max_examples=examples(50), deadline=None)
def test_one_streamer_with_wide_patterns_both_ways_delivers_everything_once(
    traffic: list[tuple[int, int, int]], order: list[int]
) -> None:
    mesh = Mesh(*pair_configs("b")[:1])
    check_deliveries(mesh, asyncio.run(play(mesh, traffic, order)), {})


@given(Traffic, Order, Order)
@settings(max_examples=examples(100), deadline=None)
def test_pair_of_which_one_dies_at_any_moment_loses_nothing(
    traffic: list[tuple[int, int, int]], before: list[int], after: list[int]
) -> None:
    mesh = pair()
    asyncio.run(play_and_kill(mesh, traffic, before, after))


async def play_and_kill(mesh: Mesh, traffic: list[tuple[int, int, int]], before: list[int], after: list[int]) -> None:
    """Send everything, let it arrive in the order ``before``, kill one, go on in the order ``after``."""
    async with mesh:
        expected: dict[str, set[bytes]] = {"a": set(), "b": set()}
        for kind, where, _ in traffic:
            source, sink = ("a", "b") if where % 2 else ("b", "a")
            message = any_message(kind, source, sink)
            expected[sink].add(message.id)
            mesh.send(source, message)
        for choice in before:
            mesh.step(choice)
        mesh.kill("gw1")
        for choice in after:
            mesh.step(choice)
        mesh.settle()
        for name, ids in expected.items():
            counted = mesh.deliveries(name)
            assert counted.keys() == ids
            assert max(counted.values(), default=0) <= 2
        assert mesh.dead_letters() == 0


async def test_pair_of_which_one_has_lost_a_link_still_delivers_and_reports_nothing() -> None:
    """What the other one carries meanwhile comes only as a copy, whose original is never heard."""
    mesh = pair(cloud="*")
    async with mesh:
        mesh.transports[3].lose_link()  # gw2 on network b
        messages = [any_message(kind, "b", "a") for kind in (1, 2, 3)]
        for message in messages:
            mesh.send("b", message)
        mesh.settle()
        assert mesh.deliveries("a") == Counter(m.id for m in messages)
        assert mesh.dead_letters() == 0
        assert mesh.outcomes() == {"delivered": 3, "local": 3}


async def test_dead_letters_about_dead_letters_end() -> None:
    configs = [
        Config.model_validate(
            {
                "authority": name,
                "endpoints": {
                    "m": {"transport": "memory", "authorities": ["*"]},
                    far: {"transport": "memory", "authorities": [f"{far}-app"]},
                },
                "routes": [{"from": "m", "to": far, "publish": [f"//*/{ANY}"]}],
            }
        )
        for name, far in (("gw1", "x"), ("gw2", "y"))
    ]
    async with Mesh(*configs) as mesh:
        for transport in mesh.transports:
            if transport.context.name != "m":
                transport.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        mesh.send("m", any_message(0, "m", "m"))
        for _ in range(100):
            mesh.step(0)
        assert mesh.dead_letters() == 2
        assert not any(mesh.step(0) for _ in range(3))


async def test_request_that_neither_of_a_pair_can_deliver_is_answered_by_both() -> None:
    mesh = pair()
    async with mesh:
        late = any_message(2, "a", "b")
        mesh.clock.ms += 60_001
        mesh.send("a", late)
        mesh.settle()
        answers = [r.message for r in mesh.networks["a"].inbox if r.message.attributes.type is UMessageType.RESPONSE]
        assert [answer.attributes.reqid for answer in answers] == [late.id] * 2
        assert len({answer.id for answer in answers}) == 2
        assert mesh.dead_letters() == 2  # one per streamer, and none about the other one's answer
