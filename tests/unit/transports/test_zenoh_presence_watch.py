"""How much is declared for flows, and how often Zenoh is asked who listens: counted on a session that only counts."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import zenoh

from streamer.transports.base import Presence
from streamer.transports.zenoh import presence_watch, watch_budget
from streamer.transports.zenoh.presence import OVERVIEW
from streamer.transports.zenoh.presence_watch import PresenceWatch
from streamer.transports.zenoh.watch_budget import BURST, BURST_PER_AUTHORITY, MAX_SINKS, MAX_TOPICS, SHARE
from tests.waiting import until

OWN, OTHER = "a" * 32, "b" * 32


def to_sink(number: int, source: str = "veh1") -> str:
    return f"up/{source}/1/0/1/8000/cloud/{number:X}/0/1/0"


def topic(number: int, source: str = "veh1") -> str:
    return f"up/{source}/1/0/1/{0x8000 + number:X}/{{}}/{{}}/{{}}/{{}}/{{}}"


def source(number: int) -> str:
    return f"up/veh{number}/1/0/1/8000/cloud/1/0/1/0"


class CountingSession:
    """Counts what is declared; ``subscribers`` are the key expressions of another node, which match everything."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.undeclared: list[str] = []
        self.lists: list[str] = []
        self.subscribers: list[str] = ["up/**"]
        self.answers: Callable[[list[Any]], list[Any]] = lambda replies: replies

    def zid(self) -> str:
        return OWN

    def declare_publisher(self, key: str, **how: object) -> Any:
        self.declared.append(key)
        nothing = SimpleNamespace(undeclare=lambda: None)
        return SimpleNamespace(
            declare_matching_listener=lambda listener: nothing,
            matching_status=SimpleNamespace(matching=True),
            undeclare=lambda: self.undeclared.append(key),
        )

    def get(self, selector: str, handler: Any, **how: object) -> None:
        self.lists.append(selector)
        for reply in self.answers([reply_of(key) for key in self.subscribers]):
            handler.callback(reply)
        handler.drop()


def reply_of(key: str, nodes: tuple[str, ...] = (OTHER,), by: str = OWN) -> Any:
    payload = SimpleNamespace(to_string=lambda: json.dumps({"routers": [], "peers": list(nodes), "clients": []}))
    ok = SimpleNamespace(key_expr=f"@/{OWN}/peer/subscriber/{key}", payload=payload)
    return SimpleNamespace(ok=ok, replier_id=SimpleNamespace(zid=by))


class DirectControl:
    """A control thread that works at once."""

    def post(self, call: Callable[[], None]) -> None:
        call()


@pytest.fixture(autouse=True)
def plain_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        zenoh.handlers,
        "Callback",
        lambda callback, drop, indirect: SimpleNamespace(callback=callback, drop=drop),
    )


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


async def test_sink_beyond_the_bound_is_known_by_the_overview(
    watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_budget, "MAX_SINKS", 0)
    told: list[Presence] = []
    watch.add(to_sink(1), told.append)
    await until(lambda: told == [Presence.ABSENT], "only a recorder")
    session.subscribers.append("up/*/*/*/*/*/cloud/1/0/1/0")
    await until(lambda: told == [Presence.ABSENT, Presence.PRESENT], "the receiver")
    watch.close()


async def test_topic_beyond_the_bound_counts_as_listened_to(watch: PresenceWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_budget, "MAX_TOPICS", 0)
    assert watch.add(topic(1), ignore) is Presence.PRESENT


async def test_lists_end_when_there_is_only_the_receiver(watch: PresenceWatch, session: CountingSession) -> None:
    session.subscribers = ["up/*/*/*/*/*/cloud/1/0/1/0"]
    told: list[Presence] = []
    watch.add(to_sink(1), told.append)
    await until(lambda: told == [Presence.PRESENT], "the receiver")
    assert session.lists == [f"@/{OWN}/*/subscriber/up/*/*/*/*/*/cloud/1/0/1/0"]
    assert watch._listing is None
    assert watch.add(source(7), ignore) is Presence.PRESENT
    assert watch._listing is None


async def test_only_our_own_session_is_believed_about_others(watch: PresenceWatch, session: CountingSession) -> None:
    receiver = "up/*/*/*/*/*/cloud/1/0/1/0"
    session.answers = lambda replies: [
        *replies,
        reply_of(receiver, by=OTHER),  # somebody else answers
        reply_of(receiver, nodes=(OWN,)),  # our own subscription
        SimpleNamespace(ok=None, replier_id=None),
    ]
    told: list[Presence] = []
    watch.add(to_sink(1), told.append)
    await until(lambda: told == [Presence.ABSENT], "the recorder alone")
    watch.close()


async def test_many_lists_are_asked_for_a_few_at_a_time_and_all_in_turn(
    watch: PresenceWatch, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_watch, "_LIST_S", 0.0)
    monkeypatch.setattr(presence_watch, "_LIST_SHARE", 0.0)
    rounds: list[int] = []
    list_ = watch._list

    def counted() -> None:
        before = len(session.lists)
        list_()
        rounds.append(len(session.lists) - before)

    monkeypatch.setattr(watch, "_list", counted)
    for number in range(60):
        watch.add(to_sink(number, f"veh{number % 3}"), ignore)
    await until(lambda: len(session.lists) >= 240, "four lists of each")
    watch.close()
    assert max(rounds) <= 32
    counts = [session.lists[:240].count(selector) for selector in set(session.lists)]
    assert len(counts) == 60
    assert min(counts) >= 3
