"""The story of the demonstrated pair: when the active one is killed, what counts as protected, and what is a problem."""

import asyncio
import io
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from demo import display, pair, scenario
from demo.ledger import Ledger
from demo.metrics import Books, EndpointState, PairRole, Snapshot
from demo.pair import PairStory
from demo.processes import DemoDaemon, DemoProcesses
from demo.run import faults

SOON_S = 0.05
IS_UP = (EndpointState("vehicle", "zenoh", is_up=True), EndpointState("cloud", "mqtt5", is_up=True))
IS_ON_STANDBY = "is on standby, with a copy of everything"


def active(epoch: int = 1, problem: str = "") -> Snapshot:
    return Snapshot(endpoints=IS_UP, role=PairRole(is_active=True, epoch=epoch, problem=problem))


def standby(problem: str = "") -> Snapshot:
    return Snapshot(endpoints=IS_UP[:1], role=PairRole(is_active=False, epoch=1, problem=problem))


class Pair(DemoProcesses):
    """Two daemons without processes. The one that is left takes over and delivers, unless ``takes_over`` is false."""

    def __init__(self, ledger: Ledger, takes_over: bool = True) -> None:
        super().__init__(is_pair=True)
        self.ledger = ledger
        self.takes_over = takes_over
        self.killed: list[str] = []
        self.daemons = [FakeDaemon(name, self) for name in ("first", "second")]
        self.latest = {"first": active(), "second": standby()}


class FakeDaemon(DemoDaemon):
    """A daemon without a process."""

    def __init__(self, name: str, both: Pair) -> None:
        self.name = name
        self.is_killed = False
        self._both = both

    async def kill(self) -> None:
        self.is_killed = True
        self._both.killed.append(self.name)
        self._both.latest[self.name] = None
        if self._both.takes_over:
            self._both.latest |= {name: active(epoch=2) for name, last in self._both.latest.items() if last is not None}
            for flow in self._both.ledger.flows.values():
                flow.arrived += 1

    async def start(self) -> None:
        self.is_killed = False
        self._both.latest[self.name] = standby()


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pair, "START_S", SOON_S)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def story_of(takes_over: bool = True, is_heard: bool = True) -> tuple[PairStory, Pair]:
    ledger = Ledger(scenario.FLOWS)
    both = Pair(ledger, takes_over)
    return PairStory(both, ledger, lambda: is_heard), both


async def test_the_active_one_is_killed_and_comes_back_on_standby() -> None:
    story, both = story_of()
    assert await story.begin()
    await story.run(SOON_S, asyncio.Event())
    assert [(event.streamer, event.text) for event in story.events] == [
        ("second", IS_ON_STANDBY),
        ("first", "is killed (SIGKILL)"),
        ("second", "has taken over, and delivers in both directions"),
        ("first", "is started again"),
        ("first", IS_ON_STANDBY),
    ]
    assert (both.killed, story.problems) == (["first"], [])
    assert story.roles() == [
        ("first", "standby", "has a copy of everything, and could take over"),
        ("second", "active", "works, in epoch 2"),
    ]


async def test_a_standby_that_does_not_take_over_is_a_problem() -> None:
    story, both = story_of(takes_over=False)
    assert await story.begin()
    await story.run(SOON_S, asyncio.Event())
    assert both.killed == ["first"]
    assert story.problems == ["second did not take over (not one of the two is active, and one on standby) within 0 s"]
    assert story.roles()[0] == ("first", "killed", "")


async def test_the_role_of_a_streamer_that_does_not_answer_is_unknown() -> None:
    story, both = story_of()
    both.latest["second"] = None
    assert story.roles() == [("first", "active", "works, in epoch 1"), ("second", "unknown", "it does not answer")]


async def test_nobody_is_killed_once_the_senders_are_to_stop() -> None:
    story, both = story_of()
    stop = asyncio.Event()
    stop.set()
    await story.run(60.0, stop)
    assert (both.killed, story.problems) == ([], [])


async def test_nobody_is_killed_while_the_standby_could_not_take_over() -> None:
    story, both = story_of()
    both.latest["second"] = standby(problem="the copy is not complete yet")
    assert not await story.begin()
    await story.run(SOON_S, asyncio.Event())
    assert both.killed == []
    assert story.problems == ["the pair was not protected (second: the copy is not complete yet) within 0 s"]


@pytest.mark.parametrize(
    ("first", "second", "is_heard", "why"),
    [
        (active(), standby(), True, ""),
        (active(), standby(), False, "one of the two does not hear the vehicle"),
        (active(), None, True, "not one of the two is active, and one on standby"),
        (active(), active(), True, "not one of the two is active, and one on standby"),
        (standby(), standby(), True, "not one of the two is active, and one on standby"),
        (active(problem="no copy"), standby(), True, "first: no copy"),
        (active(), Snapshot(role=PairRole(is_active=False, epoch=1, problem="")), True, "second is not connected: vehicle"),
        (Snapshot(IS_UP[:0], IS_UP[:1], active().role), standby(), True, "first is not connected: cloud"),
    ],
)
def test_a_pair_is_protected_if_each_says_so_and_is_connected(
    first: Snapshot, second: Snapshot | None, is_heard: bool, why: str
) -> None:
    story, both = story_of(is_heard=is_heard)
    both.latest = {"first": first, "second": second}
    assert story.why_unprotected() == why


@pytest.mark.parametrize("size", [(80, 24), (128, 60)])
async def test_the_table_shows_flows_roles_and_what_has_happened_last(size: tuple[int, int]) -> None:
    story, both = story_of()
    assert await story.begin()
    await story.run(SOON_S, asyncio.Event())
    console = Console(width=size[0], record=True, file=io.StringIO())
    console.print(display.live(both.ledger, Snapshot(), 0.0, "", size, story))
    shown = console.export_text()
    lines = [line.split(maxsplit=2) for line in shown.partition("The pair")[2].splitlines()[1:7]]
    assert [line[:2] for line in lines[:2]] == [["first", "standby"], ["second", "active"]]
    assert lines[2][2].split(maxsplit=1)[1].strip() == "is killed (SIGKILL)"
    assert lines[5][2].split(maxsplit=1)[1].strip() == IS_ON_STANDBY
    assert all(flow in shown for flow in scenario.FLOWS)


def test_a_daemon_that_does_not_answer_at_the_end_is_a_fault() -> None:
    broken = Snapshot((Books("up", accepted=3, queued=1, outcomes={"delivered": 1}),))
    assert faults({"first": None, "second": broken}) == [
        "the metrics of 'first' cannot be read at the end",
        "the books of route up in 'second' do not balance",
        "1 still queued in 'second' after 45 s",
    ]
    assert faults({"streamer": Snapshot()}) == []
