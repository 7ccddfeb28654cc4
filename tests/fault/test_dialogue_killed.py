"""kill -9 of the services at random points of a dialogue: the short form, and whether the harness would notice."""

from pathlib import Path

import pytest

from tests.fault.dialogue_asking import APPS, TOPICS
from tests.fault.dialogue_model import OK, PENDING, SUBSCRIBED, UNSUBSCRIBED, Ask, Chain, World, after, passed
from tests.fault.dialogue_updates import BrokenError
from tests.fault.dialogues import Dialogue

SEEDS = range(1, 5)
STEPS = 20
LOCAL, REMOTE = TOPICS[0], TOPICS[3]


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed-{seed}")
def test_every_answer_holds_after_kills_inside_transactions(tmp_path: Path, seed: int) -> None:
    figures = Dialogue(tmp_path, seed, kills_inside_only=True).play(STEPS)
    assert figures["kills"] > 0
    assert figures["answered"] > 0
    assert figures["updates"] > 0


def test_every_answer_holds_after_kills_from_outside(tmp_path: Path) -> None:
    assert Dialogue(tmp_path, 5).play(STEPS)["kills"] > 0


def test_services_that_forget_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(BrokenError, match="seed 1, life"):
        Dialogue(tmp_path, 1, kills_inside_only=True, forgets=True).play(STEPS)


def asked(*asks: Ask, answered: int) -> Chain[World]:
    """A killed dialogue of which the first ones were answered."""
    chain = Chain(after, {World()}, passed)
    for n, ask in enumerate(asks):
        chain.add(ask).has_happened = n < answered
    assert chain.cut(0)
    return chain


def test_what_was_not_answered_may_have_happened_in_the_order_of_asking() -> None:
    first, second, third = (Ask("subscribe", LOCAL, app, "dev1") for app in APPS[:3])
    worlds = asked(first, second, third, answered=1).states
    subscribers = {tuple(entry.subscriber for entry in world.entries) for world in worlds}
    assert subscribers == {tuple(APPS[:1]), tuple(APPS[:2]), tuple(APPS[:3])}


def test_an_answer_that_no_world_gives_leaves_none() -> None:
    chain = Chain(after, {World()}, passed)
    link = chain.add(Ask("subscribe", REMOTE, APPS[0], "dev1"))
    link.answer, link.has_happened = (OK, SUBSCRIBED), True
    assert not chain.cut(0)


def test_a_remote_subscription_is_pending_until_it_is_left() -> None:
    subscribe, leave = (Ask(method, REMOTE, APPS[0], "dev1") for method in ("subscribe", "unsubscribe"))
    [world] = asked(subscribe, answered=1).states
    assert (world.state_of(REMOTE), world.due()) == (PENDING, {(REMOTE, True)})
    [world] = asked(subscribe, leave, answered=2).states
    assert (world.state_of(REMOTE), world.due()) == (UNSUBSCRIBED, {(REMOTE, False)})
