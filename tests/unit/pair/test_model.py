"""Whatever fails, in whatever order: nothing that was accepted is lost, and only one works while they hear each other."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.pair.world import TIMING, World

MESSAGES = ["vehicle", "cloud"]
DISKS = ["replace a", "replace b"]
CRASHES = [f"{act} {name}" for act in ("crash", "start") for name in "ab"]
PAUSES = [f"{act} {name}" for act in ("pause", "resume") for name in "ab"]
CUTS = ["cut", "heal"]
HANDOVERS = [f"hand over {name}" for name in "ab"]
BROKER = ["broker away", "broker back", "slow link", "fast link"]
seconds = st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.9, 1.1, 1.6, 3.1, 11.0])
rates = st.tuples(st.sampled_from([0.95, 1.0, 1.05]), st.sampled_from([0.95, 1.0, 1.05]))


def histories(*kinds: list[str]) -> st.SearchStrategy[list[tuple[str, float]]]:
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
        case "slow" | "fast":
            world.delay_s = 0.1 if verb == "slow" else 0.0
        case "cut":
            world.is_cut = True
            world.new_link()
        case "heal":
            heal(world)
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


def heal(world: World) -> None:
    if world.is_cut:
        world.is_cut = False
        world.new_link()


def played(history: list[tuple[str, float]], of: tuple[float, float]) -> World:
    """What is left once everything is well again."""
    world = World(of)
    for what, for_s in history:
        act(world, what)
        world.run(for_s)
    heal(world)
    world.has_broker = True
    for node in world.nodes:
        node.start()
        node.is_paused = False
    world.run(TIMING.wait_s + TIMING.longest_stand_back_s + 5)
    working = [node for node in world.nodes if node.may_send]
    assert len(working) == 1, [node.lease.is_active for node in world.nodes]
    assert world.nodes[0].lease.epoch == world.nodes[1].lease.epoch
    assert world.at_broker == {}
    said = {message for message, _, _ in world.said}
    assert world.owed <= said, world.owed - said
    for node in world.nodes:
        assert node.disk.waiting == node.disk.replica == {}
    return world


@given(histories(CRASHES, PAUSES, CUTS, BROKER, DISKS, HANDOVERS), rates)
@settings(max_examples=examples(400))
def test_whatever_fails_nothing_that_was_accepted_is_lost(history: list[tuple[str, float]], of: tuple[float, float]) -> None:
    played(history, of)


@given(histories(PAUSES, BROKER, HANDOVERS), rates)
@settings(max_examples=examples(200))
def test_while_nothing_crashes_and_the_link_holds_nothing_comes_twice(
    history: list[tuple[str, float]], of: tuple[float, float]
) -> None:
    said = Counter(message for message, _, _ in played(history, of).said)
    assert {message for message, times in said.items() if times > 1} == set()
