"""How much is declared for flows, counted on a session that only counts."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from streamer.transports.base import Presence
from streamer.transports.zenoh import watch_budget
from streamer.transports.zenoh.presence import OVERVIEW
from streamer.transports.zenoh.presence_watch import PresenceWatch
from streamer.transports.zenoh.watch_budget import BURST, BURST_PER_AUTHORITY, MAX_SINKS, MAX_TOPICS, SHARE
from tests.waiting import until


def to_sink(number: int, source: str = "veh1") -> str:
    return f"up/{source}/1/0/1/8000/cloud/{number:X}/0/1/0"


def topic(number: int, source: str = "veh1") -> str:
    return f"up/{source}/1/0/1/{0x8000 + number:X}/{{}}/{{}}/{{}}/{{}}/{{}}"


def source(number: int) -> str:
    return f"up/veh{number}/1/0/1/8000/cloud/1/0/1/0"


class CountingSession:
    """Counts what is declared. Everything has a match, except for what is in ``unmatched``."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.undeclared: list[str] = []
        self.unmatched: set[str] = set()

    def declare_publisher(self, key: str, **how: object) -> Any:
        self.declared.append(key)
        nothing = SimpleNamespace(undeclare=lambda: None)
        return SimpleNamespace(
            declare_matching_listener=lambda listener: nothing,
            matching_status=SimpleNamespace(matching=key not in self.unmatched),
            undeclare=lambda: self.undeclared.append(key),
        )


class DirectControl:
    """A control thread that works at once."""

    def post(self, call: Callable[[], None]) -> None:
        call()


@pytest.fixture
async def session() -> CountingSession:
    return CountingSession()


@pytest.fixture
def clock() -> list[float]:
    """What time it is for budgets."""
    return [100.0]


@pytest.fixture
async def watch(session: CountingSession, clock: list[float]) -> PresenceWatch:
    watch = PresenceWatch(lambda: clock[0])
    control: Any = DirectControl()
    counting: Any = session
    watch.open(asyncio.get_running_loop(), control, counting)
    watch.nodes(True)
    return watch


def ignore(presence: Presence) -> None:
    """Nobody is told."""


async def test_flood_of_sources_declares_one_watch_for_their_sink(watch: PresenceWatch, session: CountingSession) -> None:
    for number in range(12_000):
        watch.add(source(number), ignore)
    assert session.declared == ["up/*/*/*/*/*/cloud/1/0/1/0"]


@pytest.mark.parametrize("flow", [to_sink, topic])
async def test_flood_of_one_authority_declares_no_more_than_its_burst(
    flow: Callable[[int], str], watch: PresenceWatch, session: CountingSession
) -> None:
    for number in range(3000):
        watch.add(flow(number), ignore)
    own = [key for key in session.declared if key != OVERVIEW]
    assert len(own) == BURST_PER_AUTHORITY
    assert session.declared.count(OVERVIEW) == (flow is to_sink)
    watch.add("up/veh2/1/0/1/8000/cloud/FFF/0/1/0", ignore)  # another authority has a budget of its own
    assert len(session.declared) == len(own) + session.declared.count(OVERVIEW) + 1


async def test_flood_of_invented_authorities_declares_no_more_than_the_burst_of_all(
    watch: PresenceWatch, session: CountingSession
) -> None:
    for number in range(3000):
        watch.add(topic(0, f"evil{number}"), ignore)
    assert len(session.declared) == BURST


@pytest.mark.parametrize(("flow", "most"), [(to_sink, MAX_SINKS), (topic, MAX_TOPICS)])
async def test_flows_that_wait_get_watches_of_their_own_up_to_the_bounds(
    flow: Callable[[int, str], str], most: int, watch: PresenceWatch, session: CountingSession, clock: list[float]
) -> None:
    def own() -> list[str]:
        return [key for key in session.declared if key != OVERVIEW]

    def promote() -> None:
        for _ in range(100):
            clock[0] += 10.0
            watch._promote()
        assert len(set(own())) == len(own())

    for number in range(600):
        watch.add(flow(number, "veh1"), ignore)
    promote()
    assert len(own()) == most // SHARE  # the other half is for others
    for number in range(600, 1200):
        watch.add(flow(number, f"veh{number % 7}"), ignore)
    promote()
    assert len(own()) == most
    watch.remove(flow(0, "veh1"), ignore)
    promote()
    assert len(own()) == most + 1
    watch.close()


async def test_flows_that_are_forgotten_when_they_get_a_watch_leave_nothing_behind(
    watch: PresenceWatch, session: CountingSession, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_budget, "MAX_TOPICS", 0)

    def forget(presence: Presence) -> None:
        for number in range(3):
            watch.remove(topic(number), forget)

    for number in range(3):
        watch.add(topic(number), forget)
    monkeypatch.setattr(watch_budget, "MAX_TOPICS", 8)
    watch._promote()
    assert session.declared == []
    assert not watch._watches.flows
    assert not watch._waiting


async def test_overview_goes_with_its_last_flow(
    watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_budget, "MAX_SINKS", 0)
    watch.add(to_sink(1), ignore)
    watch.add(to_sink(2), ignore)
    watch.remove(to_sink(1), ignore)
    assert (session.declared, session.undeclared) == ([OVERVIEW], [])
    watch.remove(to_sink(2), ignore)
    assert session.undeclared == [OVERVIEW]
    assert not watch._waiting


@pytest.mark.parametrize(("unmatched", "presence"), [(set(), Presence.PRESENT), ({OVERVIEW}, Presence.ABSENT)])
async def test_sink_beyond_the_bound_is_known_by_the_overview(
    watch: PresenceWatch,
    session: CountingSession,
    monkeypatch: pytest.MonkeyPatch,
    unmatched: set[str],
    presence: Presence,
) -> None:
    monkeypatch.setattr(watch_budget, "MAX_SINKS", 0)
    session.unmatched = unmatched
    told: list[Presence] = []
    watch.add(to_sink(1), told.append)
    await until(lambda: told == [presence], "the overview's match")
    watch.close()


async def test_topic_beyond_the_bound_counts_as_listened_to(watch: PresenceWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_budget, "MAX_TOPICS", 0)
    assert watch.add(topic(1), ignore) is Presence.PRESENT
