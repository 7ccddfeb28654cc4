"""How much is declared for flows, counted on a session that only counts; watches are bounded in number and in pace."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import zenoh

from streamer.transports.base import Presence
from streamer.transports.zenoh import presence_watch
from streamer.transports.zenoh.presence import WatchedFlows
from streamer.transports.zenoh.presence_watch import (
    _FLOWS_PER_POLL,
    BURST,
    BURST_PER_AUTHORITY,
    MAX_WATCHES,
    MAX_WATCHES_PER_AUTHORITY,
    PresenceWatch,
    WatchBudget,
)
from tests.waiting import until


def to_sink(number: int, source: str = "veh1") -> str:
    return f"up/{source}/1/0/1/8000/cloud/{number:X}/0/1/0"


def topic(number: int, source: str = "veh1") -> str:
    return f"up/{source}/1/0/1/{0x8000 + number:X}/{{}}/{{}}/{{}}/{{}}/{{}}"


def source(number: int) -> str:
    return f"up/veh{number}/1/0/1/8000/cloud/1/0/1/0"


class CountingSession:
    """Counts what is there and what was ever made. Everything has a match, except for what is in ``unmatched``."""

    def __init__(self) -> None:
        self.publishers: Counter[str] = Counter()
        self.declared = 0
        self.asked: list[str] = []
        self.watched: list[str] = []
        self.unmatched: set[str] = set()
        self.failing: set[str] = set()
        self.deaf: set[str] = set()

    def declare_publisher(self, key: str, **how: object) -> Any:
        if key in self.failing:
            raise zenoh.ZError("no")
        self.publishers[key] += 1
        self.declared += 1
        return _Publisher(self, key)


class _Publisher:
    def __init__(self, session: CountingSession, key: str) -> None:
        self._session = session
        self._key = key

    def declare_matching_listener(self, listener: object) -> Any:
        assert isinstance(listener, zenoh.handlers.Callback)
        assert not listener.indirect  # else Zenoh starts a thread for it
        if self._key in self._session.deaf:
            raise zenoh.ZError("no")
        self._session.watched.append(self._key)
        return SimpleNamespace(undeclare=lambda: self._session.watched.remove(self._key))

    @property
    def matching_status(self) -> Any:
        self._session.asked.append(self._key)
        return SimpleNamespace(matching=self._key not in self._session.unmatched)

    def undeclare(self) -> None:
        self._session.publishers[self._key] -= 1


@pytest.fixture
async def session() -> CountingSession:
    return CountingSession()


@pytest.fixture
def clock() -> list[float]:
    """What time it is for budgets."""
    return [100.0]


@pytest.fixture
def sending() -> dict[str, Any]:
    """The publishers with which messages are sent."""
    return {}


def opened(
    session: Any, post: Callable[[Callable[[], None]], None], now_s: Callable[[], float] = lambda: 100.0, sending: Any = None
) -> PresenceWatch:
    """A watch of a session with another node, whose control thread is ``post``."""
    flows = WatchedFlows()
    flows.set_nodes_present(True)
    control: Any = SimpleNamespace(post=post)
    find = ({} if sending is None else sending).get
    return PresenceWatch(asyncio.get_running_loop(), control, session, find, threading.Lock(), flows, now_s)


@pytest.fixture
async def watch(session: CountingSession, clock: list[float], sending: dict[str, Any]) -> PresenceWatch:
    """Its control thread works at once."""
    return opened(session, lambda call: call(), lambda: clock[0], sending)


async def settled(watch: PresenceWatch) -> None:
    """Return when every question has an answer."""
    await until(lambda: not watch._polls._is_asking, "answers")


def ignore(presence: Presence) -> None:
    """Nobody is told."""


@pytest.mark.parametrize("flow", [to_sink, topic])
async def test_flood_of_one_authority_is_watched_no_more_than_its_burst(
    flow: Callable[[int], str], watch: PresenceWatch, session: CountingSession
) -> None:
    for number in range(3000):
        watch.add(flow(number), ignore)
    await settled(watch)
    assert len(session.watched) == BURST_PER_AUTHORITY
    watch.add("up/veh2/1/0/1/8000/cloud/FFF/0/1/0", ignore)  # another authority has a budget of its own
    assert len(session.watched) == BURST_PER_AUTHORITY + 1
    watch.close()


async def test_flood_of_invented_authorities_is_watched_no_more_than_the_burst_of_all(
    watch: PresenceWatch, session: CountingSession
) -> None:
    for number in range(3000):
        watch.add(source(number), ignore)
    await settled(watch)
    assert len(session.watched) == BURST
    watch.close()


async def test_what_is_sent_often_is_asked_about_by_its_own_publisher(
    watch: PresenceWatch, session: CountingSession, sending: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_schedule_poll", lambda: None)
    told: dict[str, list[Presence]] = {topic(number): [] for number in range(3000)}
    senders = CountingSession()
    sending.update({key: _Publisher(senders, key) for key in told})
    for key, presences in told.items():
        watch.add(key, presences.append)
    await settled(watch)
    assert sorted(senders.asked) == sorted(key for key in told if key not in session.watched)
    assert session.declared == len(session.watched)
    assert all(presences == [Presence.PRESENT] for presences in told.values())
    watch.close()


async def test_flow_without_a_watch_is_asked_about_once_and_its_publisher_is_kept_up_to_a_bound(
    watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_schedule_poll", lambda: None)
    monkeypatch.setattr(presence_watch, "MAX_KEPT", 100)
    told: dict[str, list[Presence]] = {source(number): [] for number in range(3000)}
    for key, presences in told.items():
        watch.add(key, presences.append)
    await settled(watch)
    assert session.asked == list(told)
    unwatched = [key for key in told if key not in session.watched]
    assert +session.publishers == Counter([*session.watched, *unwatched[:100]])
    assert all(presences == [Presence.PRESENT] for presences in told.values())
    for key, presences in told.items():
        watch.remove(key, presences.append)
    assert (session.watched, +session.publishers) == ([], Counter())
    watch.close()


async def test_flow_is_watched_through_the_publisher_that_was_kept_for_it(
    watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_watch, "MAX_WATCHES", 0)
    watch.add(to_sink(1), ignore)
    await settled(watch)
    watch._polls.ask([to_sink(1)])  # still waits when the watch is made
    monkeypatch.setattr(presence_watch, "MAX_WATCHES", 8)
    watch._poll_unwatched()
    await settled(watch)
    assert (session.watched, session.declared) == ([to_sink(1)], 1)
    watch.remove(to_sink(1), ignore)
    assert (session.watched, +session.publishers) == ([], Counter())
    watch.close()


@pytest.mark.parametrize("count", [40, 200, 1000])
async def test_a_flow_is_polled_once_a_second_at_most(
    count: int, watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_watch, "MAX_WATCHES", 0)
    monkeypatch.setattr(watch, "_schedule_poll", lambda: None)
    for number in range(count):
        watch.add(to_sink(number), ignore)
    await settled(watch)
    session.asked.clear()
    for _ in range(4):
        watch._poll_unwatched()
        await settled(watch)
    assert len(session.asked) == len(set(session.asked)) == min(count, 4 * _FLOWS_PER_POLL)
    watch.close()


async def test_a_flow_that_cannot_be_watched_is_watched_later(
    watch: PresenceWatch, session: CountingSession, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Presence] = []
    session.failing.add(to_sink(1))
    watch.add(to_sink(1), told.append)
    watch.add(to_sink(2), ignore)
    await until(lambda: to_sink(1) in watch._unwatched, "that it failed")
    assert (told, session.watched) == ([], [to_sink(2)])
    session.failing.clear()
    clock[0] += 10.0
    watch._poll_unwatched()
    await until(lambda: told == [Presence.PRESENT], "what it is")
    assert session.watched == [to_sink(2), to_sink(1)]
    assert "zenoh_call_failed" in caplog.text
    watch.close()


async def test_a_publisher_without_a_listener_is_used_for_the_next_try_and_undeclared_with_the_flow(
    watch: PresenceWatch, session: CountingSession, clock: list[float]
) -> None:
    session.deaf.add(to_sink(1))
    watch.add(to_sink(1), ignore)
    await until(lambda: to_sink(1) in watch._unwatched, "that it failed")
    session.deaf.clear()
    clock[0] += 10.0
    watch._poll_unwatched()
    assert (session.watched, +session.publishers) == ([to_sink(1)], Counter([to_sink(1)]))
    watch.remove(to_sink(1), ignore)
    assert (session.watched, +session.publishers, watch._kept) == ([], Counter(), {})
    watch.close()


async def test_a_flow_that_cannot_be_watched_and_goes_is_forgotten(watch: PresenceWatch, session: CountingSession) -> None:
    session.failing.add(to_sink(1))
    watch.add(to_sink(1), ignore)
    watch.remove(to_sink(1), ignore)
    watch.add(to_sink(2), ignore)
    await until(lambda: watch._flows.by_key[to_sink(2)].matched is True, "another flow's answer")
    assert (watch._unwatched, watch._flows.by_key.keys()) == ({}, {to_sink(2)})
    watch.close()


async def test_questions_wait_for_each_other(session: CountingSession) -> None:
    """So that what is declared for others comes in between."""
    posted: list[Callable[[], None]] = []
    watch = opened(session, posted.append)
    for number in range(BURST, 3000):
        watch.add(to_sink(number), ignore)
    await until(lambda: len(posted) > BURST_PER_AUTHORITY, "the first question")
    for call in posted[:-1]:
        call()
    assert len(session.asked) == len(session.watched) == len(posted) - 1
    posted.pop()()
    assert len(session.asked) == len(session.watched) + _FLOWS_PER_POLL
    watch.close()


@pytest.mark.parametrize("flow", [to_sink, topic])
async def test_flows_are_watched_up_to_the_bounds_as_soon_as_there_is_room(
    flow: Callable[[int, str], str], watch: PresenceWatch, session: CountingSession, clock: list[float]
) -> None:
    def pass_time() -> None:
        for _ in range(100):
            clock[0] += 10.0
            watch._poll_unwatched()

    for number in range(600):
        watch.add(flow(number, "veh1"), ignore)
    pass_time()
    assert len(session.watched) == MAX_WATCHES_PER_AUTHORITY  # the other half is for others
    for number in range(600, 1400):
        watch.add(flow(number, f"veh{number % 7}"), ignore)
    pass_time()
    assert len(session.watched) == len(set(session.watched)) == MAX_WATCHES
    watch.remove(flow(0, "veh1"), ignore)
    assert len(session.watched) == MAX_WATCHES - 1
    pass_time()
    assert len(session.watched) == MAX_WATCHES
    watch.close()


async def test_flow_that_is_forgotten_before_its_turn_leaves_nothing_behind(
    watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_watch, "MAX_WATCHES", 0)
    told: list[Presence] = []
    for number in range(3):
        watch.add(to_sink(number), told.append)
        watch.remove(to_sink(number), told.append)
    monkeypatch.setattr(presence_watch, "MAX_WATCHES", 8)
    watch._poll_unwatched()
    await settled(watch)
    assert (told, session.watched, +session.publishers) == ([], [], Counter())
    assert (watch._unwatched, watch._flows.by_key) == ({}, {})


@pytest.mark.parametrize("room", [8, 0], ids=["watched", "not watched"])
async def test_a_match_that_was_not_heard_of_in_the_grace_is_found_at_its_end(
    room: int, watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that is too busy: what Zenoh has called back with still waits for its turn."""
    monkeypatch.setattr(presence_watch, "MAX_WATCHES", room)
    told: list[Presence] = []
    session.unmatched = {to_sink(1)}
    watch.add(to_sink(1), told.append)
    await until(lambda: watch._flows.by_key[to_sink(1)].matched is False, "the first answer")
    session.unmatched = set()
    await until(lambda: told != [], "what it is")
    assert told == [Presence.PRESENT]
    watch.close()


async def test_if_zenoh_fails_to_answer_after_the_grace_nobody_listens(
    watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_watch, "MAX_WATCHES", 0)
    monkeypatch.setattr(presence_watch, "MAX_KEPT", 0)  # a publisher for each question
    told: list[Presence] = []
    session.unmatched = {to_sink(1)}
    watch.add(to_sink(1), told.append)
    await until(lambda: watch._flows.by_key[to_sink(1)].matched is False, "the first answer")
    session.failing = {to_sink(1)}
    await until(lambda: told == [Presence.ABSENT], "what it is")
    watch.close()


async def test_a_flow_that_goes_at_the_end_of_its_grace_leaves_nothing_behind(session: CountingSession) -> None:
    posted: list[Callable[[], None]] = []
    watch = opened(session, posted.append)
    session.unmatched = {to_sink(1)}
    watch.add(to_sink(1), ignore)
    posted.pop()()
    await until(lambda: len(posted) == 1, "the question after the grace")
    watch.remove(to_sink(1), ignore)
    for call in posted:
        call()
    assert (session.watched, +session.publishers, watch._kept) == ([], Counter(), {})
    watch.close()


# -- flows without a watch, as listeners and nodes come and go


@pytest.fixture
def unwatched(watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch) -> list[Presence]:
    """What is told of one flow without a watch."""
    monkeypatch.setattr(presence_watch, "MAX_WATCHES", 0)
    told: list[Presence] = []
    watch.add(to_sink(1), told.append)
    return told


async def test_listener_that_goes_is_missed_in_turn(
    unwatched: list[Presence], watch: PresenceWatch, session: CountingSession
) -> None:
    await until(lambda: unwatched == [Presence.PRESENT], "the first answer")
    session.unmatched = {to_sink(1)}
    await until(lambda: unwatched == [Presence.PRESENT, Presence.ABSENT], "the next answer")
    session.unmatched = set()
    await until(lambda: unwatched[2:] == [Presence.PRESENT], "the one after it")
    watch.close()


async def test_lost_node_puts_a_flow_in_doubt_until_it_has_been_asked_about(
    unwatched: list[Presence], watch: PresenceWatch, session: CountingSession
) -> None:
    await until(lambda: unwatched == [Presence.PRESENT], "the first answer")
    session.unmatched = {to_sink(1)}
    watch.node_lost("a1")
    assert unwatched[1:] == [Presence.UNKNOWN]
    await until(lambda: unwatched[2:] == [Presence.ABSENT], "that nobody listens")
    watch.close()


async def test_node_that_came_is_asked_about_when_its_subscriptions_are_known(
    unwatched: list[Presence], watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.unmatched = {to_sink(1)}
    await until(lambda: unwatched[-1:] == [Presence.ABSENT], "that nobody listens")
    monkeypatch.setattr(watch, "_poll_unwatched", lambda: None)
    asked = len(session.asked)
    unwatched.clear()
    watch.node_came("a1")
    assert unwatched == [Presence.UNKNOWN]
    session.unmatched = set()
    watch.node_settled()
    await until(lambda: unwatched[1:] == [Presence.PRESENT], "the answer")
    assert len(session.asked) == asked + 1
    watch.close()


@pytest.mark.parametrize(("back", "told"), [("a1", [Presence.INTERRUPTED, Presence.UNKNOWN]), ("b2", [Presence.PRESENT])])
async def test_only_a_node_that_is_back_itself_may_have_been_away_as_a_listener(
    watch: PresenceWatch, session: CountingSession, back: str, told: list[Presence]
) -> None:
    """Another one that comes while the flows are rechecked says nothing of the listener, which Zenoh still knows."""
    heard: list[Presence] = []
    watch.add(to_sink(1), heard.append)
    await until(lambda: heard == [Presence.PRESENT], "a listener")
    watch.node_lost("a1")
    watch.node_came(back)
    await until(lambda: len(heard) >= 2 + len(told), "the end of the recheck")
    assert heard[: 2 + len(told)] == [Presence.PRESENT, Presence.UNKNOWN, *told]
    watch.close()


def flow(number: int, authority: str = "veh1") -> str:
    return f"up/{authority}/1/0/1/8000/cloud/{number:X}/0/1/0"


def made(budget: WatchBudget, authority: str, now_s: float, count: int = 1000) -> int:
    return sum(budget.make(flow(number, authority), now_s) for number in range(count))


def made_in_time(budget: WatchBudget, numbers: range) -> list[str]:
    """The flows that got a watch, although there was time for all."""
    return [flow(number) for number in numbers if budget.make(flow(number), 10.0 * number)]


def test_authority_has_a_burst_and_then_a_pace() -> None:
    budget = WatchBudget()
    assert made(budget, "veh1", 0.0, 100) == BURST_PER_AUTHORITY
    assert sum(budget.make(flow(number), 1.0) for number in range(100, 200)) == 8


def test_authority_has_its_share_of_the_bound_however_long_it_waits() -> None:
    budget = WatchBudget()
    numbers = iter(range(10_000))
    assert (
        sum(budget.make(flow(next(numbers)), 100.0 * turn) for turn in range(20) for _ in range(100))
        == MAX_WATCHES_PER_AUTHORITY
    )
    assert made(budget, "veh2", 3000.0, 1) == 1


def test_watch_that_is_forgotten_makes_room() -> None:
    budget = WatchBudget()
    watched = made_in_time(budget, range(2000))
    assert [budget.forget(key) for key in (watched[0], watched[0], "unknown")] == [True, False, False]
    assert len(made_in_time(budget, range(2000, 2100))) == 1
