"""Long lists of the administration API: paged by names, and looked at in slices of the event loop."""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from streamer.delivery.lanes.lane import Hold, Lane
from streamer.delivery.lanes.quotas import SourceGroup
from streamer.delivery.stats import Histogram
from streamer.features.api.answers import RequestQuery
from streamer.features.api.paging import EntryPage, cursor_of, cursors
from streamer.features.api.status import LANES_PER_ITERATION, Counted, quantile
from streamer.features.judge.page_flows import STATES
from streamer.uprotocol.message import publish
from streamer.uprotocol.uri import UUri
from tests.examples import characters
from tests.flow.harness import SPEED
from tests.unit.delivery.messages import FakeOwner, message, push, route_queue, topic
from tests.unit.features.api.daemon import running
from tests.waiting import until

NAMES = st.tuples(st.text(characters, max_size=3), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))


@given(st.sets(NAMES), st.integers(1, 9))
def test_every_entry_is_on_exactly_one_page_in_order(names: set[tuple[str, int, int, int]], limit: int) -> None:
    read = cursors(UUri)
    seen: list[UUri] = []
    after: str | None = None
    while True:
        page = EntryPage[UUri](limit, None if after is None else read(after))
        for name in names:
            page.offer((UUri(*name),), UUri(*name))
        assert page.total == len(names)
        seen += page.entries()
        after = page.next
        if after is None:
            break
        assert len(page.entries()) == limit
    assert seen == sorted(UUri(*name) for name in names)


@given(st.text(characters, max_size=5), NAMES)
def test_a_cursor_is_read_as_it_was_written(text: str, name: tuple[str, int, int, int]) -> None:
    read = cursors(str, UUri, UUri)
    assert read(cursor_of((text, UUri(*name), ()))) == (text, UUri(*name), ())


@given(st.text(characters, max_size=40))
@pytest.mark.parametrize(
    "text",
    [
        *("", "W10", "bnVsbA", "WzFd", "W1tdLFtdXQ", "WyJhIixbMSwyLDMsNF1d"),
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        *(cursor_of(("a", odd)) for odd in (("veh1", "2", 3, 4), ("veh1", 2, True, 4), ("veh1", 2, 3, 4.5), ("veh1", 2, 3))),
    ],
)
def test_what_is_no_cursor_is_refused_and_nothing_else_happens(text: str, other: str) -> None:
    for each in (text, other):
        with pytest.raises(ValueError, match="expected the value of `next`"):
            cursors(str, UUri)(each)


@pytest.mark.parametrize(("text", "entries"), [("", 100), ("limit=1", 1), ("limit=1000", 1000)])
def test_a_list_has_a_hundred_entries_unless_another_limit_is_asked_for(text: str, entries: int) -> None:
    assert RequestQuery(make_mocked_request("GET", f"/?{text}"), ("limit",)).limit() == entries


@pytest.mark.parametrize("text", ["0", "1001", "-1", "--1", "1_0", "1.0", "", "\N{ARABIC-INDIC DIGIT THREE}", "9" * 5000])
def test_what_is_no_limit_is_refused(text: str) -> None:
    query = RequestQuery(make_mocked_request("GET", f"/?limit={text}"), ("limit",))
    with pytest.raises(web.HTTPBadRequest) as raised:
        query.limit()
    told = json.loads(raised.value.text or "")
    assert told == {"error": f"query: limit: {text[:40]!r}: expected a whole number from 1 to 1000"}


async def test_no_turn_of_the_event_loop_looks_at_more_than_some_flows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [0]
    async with running(tmp_path) as served:
        served.transport("cloud").lose_link()
        now_ms = served.daemon.router.clock.wall_ms()
        number = 3 * LANES_PER_ITERATION
        served.arrive("vehicle", *(publish(now_ms, SPEED._replace(ue_id=each), b"") for each in range(1, number + 1)))
        seen: list[Lane] = []

        def is_waiting(lane: Lane) -> bool:
            seen.append(lane)
            return lane.queued_messages > 0

        monkeypatch.setitem(STATES, "waiting", is_waiting)
        asking = asyncio.create_task(served.ask("/api/v1/flows", limit=1))
        while not asking.done():
            seen.clear()
            await asyncio.sleep(0)
            turns.append(len(seen))
        assert (await asking).json["total"] == number
    assert sum(turns) >= number
    assert max(turns) <= LANES_PER_ITERATION


def test_a_percentile_is_the_bound_of_its_bucket() -> None:
    histogram = Histogram()
    assert quantile(histogram, 0.5) is None
    for seconds in [0.0004] * 98 + [0.03, 100.0]:
        histogram.observe(seconds)
    assert [quantile(histogram, part) for part in (0.5, 0.98, 0.99, 1.0)] == [0.0005, 0.0005, 0.05, 60.0]


def test_a_flow_is_held_for_each_reason_as_long_as_something_waits_in_it() -> None:
    queue, counted = route_queue(), Counted()
    for number, hold in enumerate((Hold.NONE, Hold.PAUSED, Hold.PAUSED | Hold.BACKOFF)):
        push(queue, message(number, level=number)).lane.set_hold(hold)
    queue.lane((topic(9), None)).set_hold(Hold.ABSENT)
    for lane in queue.lanes.values():
        counted.add(lane)
    assert counted.held == {"backoff": 1, "absent": 0, "paused": 2, "unconfirmed": 0, "rate": 0, "window": 0}
    assert counted.by_class[:4] == [1, 1, 1, 0]


async def test_a_flow_says_that_its_rate_or_the_window_holds_it(tmp_path: Path) -> None:
    async with running(tmp_path, queue_policy={"rate": {"messages": 1}}) as served:
        now_ms = served.daemon.router.clock.wall_ms()
        served.arrive("vehicle", *(publish(now_ms, SPEED, b"") for _ in range(5)))
        await until(lambda: bool(served.transport("cloud").sent), "the first message")
        for state in ("waiting", "held", "rate"):
            (flow,) = (await served.ask("/api/v1/flows", state=state)).json["flows"]
            assert flow["held"] == ["rate"]
        assert (await served.ask("/api/v1/flows", state="window")).json["flows"] == []
        counted = [each["held"]["rate"] for each in (await served.ask("/api/v1/queues")).json["queues"]]
        assert sum(counted) == 1


def test_a_lane_waits_for_confirmations_if_its_window_or_that_of_the_endpoint_is_full() -> None:
    owner = FakeOwner()
    queue = route_queue(owner=owner)
    lane = push(queue, message(1)).lane
    assert lane.waits_for() == []
    owner.is_window_full = True
    assert lane.waits_for() == ["window"]
    owner.is_window_full = False
    lane.window = 0
    assert lane.waits_for() == ["window"]
    lane.set_hold(Hold.PAUSED)
    assert lane.waits_for() == ["paused", "window"]


def test_a_lane_of_an_unlisted_authority_waits_for_the_rate_of_them_all() -> None:
    queue = route_queue()
    lane = push(queue, message(1)).lane
    lane.group.parent = SourceGroup(queue.quotas, "", is_parent=True)
    lane.group.parent.parked = True
    assert lane.waits_for() == ["rate"]
