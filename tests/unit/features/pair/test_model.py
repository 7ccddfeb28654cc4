"""Whatever fails, in whatever order: nothing that was accepted is lost, one of the two works, and only one while they hear
each other."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.features.pair.world import TIMING, World

MESSAGES = ["vehicle", "cloud"]
DISKS = ["replace a", "replace b"]
CRASHES = [f"{act} {name}" for act in ("crash", "start") for name in "ab"]
PAUSES = [f"{act} {name}" for act in ("pause", "resume") for name in "ab"]
CUTS = ["cut", "heal"]
ONE_WAY = ["cut a", "cut b", "heal a", "heal b"]
HANDOVERS = [f"hand over {name}" for name in "ab"]
BROKER = ["broker away", "broker back"]
THIEVES = ["thief comes", "thief leaves"]
DELAYS = [f"delay {seconds} {name}" for seconds in (0.0, 0.1, 0.45, 1.0, 1.5) for name in "ab"]
SLOW = [f"delay {seconds} {name}" for seconds in (0.0, 0.1) for name in "ab"]
seconds = st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.9, 1.1, 1.6, 3.1, 11.0])
rates = st.tuples(st.sampled_from([0.95, 1.0, 1.05]), st.sampled_from([0.95, 1.0, 1.05]))

MOST_EXAMPLES = 600
"""A history of some minutes takes a tenth of a second to live: with more, a test would not end in time."""

pytestmark = pytest.mark.timeout(600)

History = list[tuple[str, float]]

LONGEST_STOP_S = TIMING.wait_s + 4 * TIMING.longest_relies_s
"""Within so long somebody may send, if a machine is there at all."""
LONGEST_PAUSE_S = 2.5 * TIMING.longest_relies_s
"""For so long nobody sends after a jump of the round trip, or at a start: three of the longest round trips."""


def histories(*kinds: list[str]) -> st.SearchStrategy[History]:
    """What happens, each with the seconds after it."""
    return st.lists(st.tuples(st.sampled_from([act for kind in (MESSAGES, *kinds) for act in kind]), seconds), max_size=30)


def act(world: World, what: str) -> None:
    verb, name = what.split(maxsplit=1)[0], what.rsplit(maxsplit=1)[-1]
    node = next((each for each in world.nodes if each.name == name), None)
    match verb:
        case "vehicle" | "cloud":
            world.publish(at_broker=verb == "cloud")
        case "broker":
            world.has_broker = name == "back"
        case "thief":
            world.has_thief = name == "comes"
        case "delay":
            world.delay(name, float(what.split()[1]))
        case "cut":
            world.deaf |= {name} if node is not None else {"a", "b"}
            world.new_link()
        case "heal":
            heal(world, {name} if node is not None else {"a", "b"})
        case "crash" if node is not None:
            node.crash()
        case "replace" if node is not None:
            node.lose_disk()
        case "hand" if node is not None and node.may_send and not node.lease.is_alone:
            node.act(node.lease.hand_over(node.now_s))
        case "start" if node is not None:
            node.start()
        case _ if node is not None:
            node.is_paused = verb == "pause"


def heal(world: World, names: set[str]) -> None:
    if world.deaf & names:
        world.deaf -= names
        world.new_link()


def lived(history: History, of: tuple[float, float]) -> World:
    """The world after a history. Somebody may send soon, if a machine is there, and then nothing changes by itself."""
    world = World(of)
    for what, for_s in history:
        act(world, what)
        world.run(for_s)
    world.run(LONGEST_STOP_S)
    there = [node for node in world.nodes if node.is_running and not node.is_paused]
    assert not there or [node for node in there if node.may_send], "nobody may send"
    roles_changed = world.roles_changed
    world.run(LONGEST_STOP_S)
    assert world.roles_changed == roles_changed, "the roles change, though nothing else does"
    return world


def played(history: History, of: tuple[float, float]) -> World:
    """What is left once everything is well again."""
    world = lived(history, of)
    heal(world, {"a", "b"})
    world.has_broker, world.has_thief = True, False
    for node in world.nodes:
        node.start()
        node.is_paused = False
    world.run(LONGEST_STOP_S)
    working = [node for node in world.nodes if node.may_send]
    assert len(working) == 1, [node.lease.is_active for node in world.nodes]
    assert not working[0].lease.is_alone
    assert world.nodes[0].lease.epoch == world.nodes[1].lease.epoch
    assert world.at_broker == {}
    said = {message for message, _, _ in world.said}
    assert world.owed <= said, world.owed - said
    for node in world.nodes:
        assert node.disk.waiting == node.disk.replica == {}
    return world


@given(histories(CRASHES, PAUSES, CUTS, ONE_WAY, BROKER, THIEVES, DELAYS, DISKS, HANDOVERS), rates)
@settings(max_examples=examples(300, MOST_EXAMPLES))
def test_whatever_fails_nothing_that_was_accepted_is_lost(history: History, of: tuple[float, float]) -> None:
    played(history, of)


@given(histories(PAUSES, BROKER, THIEVES, SLOW, HANDOVERS), rates)
@settings(max_examples=examples(100, MOST_EXAMPLES))
def test_while_nothing_crashes_and_the_link_holds_nothing_comes_twice(history: History, of: tuple[float, float]) -> None:
    said = Counter(message for message, _, _ in played(history, of).said)
    assert {message for message, times in said.items() if times > 1} == set()


@given(histories(DELAYS), rates)
@settings(max_examples=examples(100, MOST_EXAMPLES))
@example([("delay 0.5 a", 0.1), ("delay 0.5 b", 30.0)], (1.0, 1.0))
@example([("delay 1.5 a", 0.1), ("delay 1.5 b", 30.0), ("delay 0.0 a", 0.1), ("delay 0.0 b", 30.0)], (0.95, 1.05))
def test_a_jump_of_the_round_trip_costs_a_bounded_pause(history: History, of: tuple[float, float]) -> None:
    assert played(history, of).longest_pause_s < LONGEST_PAUSE_S


@given(histories(THIEVES, BROKER), rates)
@settings(max_examples=examples(50, MOST_EXAMPLES))
def test_the_end_of_a_session_at_a_broker_changes_no_role(history: History, of: tuple[float, float]) -> None:
    world = World(of)
    world.run(2.0)
    world.longest_pause_s = 0.0
    for what, for_s in [("thief comes", 30.0), *history, ("thief comes", 30.0)]:
        act(world, what)
        world.run(for_s)
    assert (world.roles_changed, world.longest_pause_s) == (1, 0.0)
