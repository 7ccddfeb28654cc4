"""kill -9 of the services at random moments: the short form, and whether the harness would notice a broken service."""

from pathlib import Path

import pytest

from tests.fault.killed_services import KilledServices
from tests.fault.services_model import OK, PENDING, SUBSCRIBED, UNSUBSCRIBED, Ask, ModelState, PossibleStates, after, passed
from tests.fault.services_requests import APPS, TOPICS
from tests.fault.services_updates import BrokenError

SEEDS = range(1, 5)
STEPS = 20
LOCAL, REMOTE = TOPICS[0], TOPICS[3]


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed-{seed}")
def test_every_answer_holds_after_kills_inside_transactions(tmp_path: Path, seed: int) -> None:
    figures = KilledServices(tmp_path, seed, kills_inside_only=True).play(STEPS)
    assert figures["kills"] > 0
    assert figures["answered"] > 0
    assert figures["updates"] > 0


def test_every_answer_holds_after_kills_from_outside(tmp_path: Path) -> None:
    assert KilledServices(tmp_path, 5).play(STEPS)["kills"] > 0


def test_services_that_forget_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(BrokenError, match="seed 1, run"):
        KilledServices(tmp_path, 1, kills_inside_only=True, forgets=True).play(STEPS)


def asked(*asks: Ask, answered: int) -> PossibleStates[ModelState]:
    """A killed service that had answered the first Requests."""
    possible = PossibleStates(after, {ModelState()}, passed)
    for n, ask in enumerate(asks):
        possible.add(ask).has_happened = n < answered
    assert possible.cut(0)
    return possible


def test_what_was_not_answered_may_have_happened_in_the_order_of_asking() -> None:
    first, second, third = (Ask("subscribe", LOCAL, app, "dev1") for app in APPS[:3])
    models = asked(first, second, third, answered=1).states
    subscribers = {tuple(entry.subscriber for entry in model.entries) for model in models}
    assert subscribers == {tuple(APPS[:1]), tuple(APPS[:2]), tuple(APPS[:3])}


def test_an_answer_that_no_possible_state_gives_leaves_none() -> None:
    possible = PossibleStates(after, {ModelState()}, passed)
    pending = possible.add(Ask("subscribe", REMOTE, APPS[0], "dev1"))
    pending.answer, pending.has_happened = (OK, SUBSCRIBED), True
    assert not possible.cut(0)


def test_a_remote_subscription_is_pending_until_it_is_left() -> None:
    subscribe, leave = (Ask(method, REMOTE, APPS[0], "dev1") for method in ("subscribe", "unsubscribe"))
    [model] = asked(subscribe, answered=1).states
    assert (model.state_of(REMOTE), model.due()) == (PENDING, {(REMOTE, True)})
    [model] = asked(subscribe, leave, answered=2).states
    assert (model.state_of(REMOTE), model.due()) == (UNSUBSCRIBED, {(REMOTE, False)})
