"""Planted losses are named, and what is no loss is not. Between streamers in a row, with clocks that the test advances."""

from collections.abc import Sequence

import pytest

from streamer.transports.base import LinkState
from streamer.uprotocol.message import UMessage
from tests.flow.harness import SPEED
from tests.unit.features.live_audit.world import SETTLED_S, Row, Station, everything, losing, settled


class Held:
    """A link that is away until it is opened, and then carries everything in order."""

    def __init__(self) -> None:
        self.is_open = False
        self._held: list[UMessage] = []

    def __call__(self, messages: Sequence[UMessage]) -> Sequence[UMessage]:
        self._held += messages
        found, self._held = (self._held, []) if self.is_open else ([], self._held)
        return found


@pytest.mark.parametrize("clocks_h", [(0, 0), (1, 0), (0, 1)])
async def test_one_lost_message_is_named_within_two_minutes(clocks_h: Sequence[int]) -> None:
    row = await settled("gw-a", clocks_h=clocks_h)
    (lost,) = row.publish()
    row["gw-a"].link = losing(lost)
    row.pass_s(120, row.publish)
    assert row.found() == [("gw-a", 1, lost.id)]
    assert (row.counts["lost"], row.counts["twice"], row.counts["unknown"]) == (1, 0, 0)


async def test_nothing_is_found_where_nothing_is_lost() -> None:
    row = await settled("gw-a", "gw-m")
    row.pass_s(600, lambda: row.publish(3))
    row.pass_s(120)
    assert not row.cloud.audit.findings
    assert row.counts == {"equal": row.published, "lost": 0, "twice": 0, "unknown": 0}


async def test_several_lost_messages_are_counted_in_their_minute() -> None:
    row = await settled("gw-a")
    row["gw-a"].link = losing(*row.publish(3))
    row.pass_s(120, row.publish)
    assert row.found() == [("gw-a", 3, None)]


async def test_a_loss_on_the_way_down_is_named_too() -> None:
    row = Row("gw-a")
    await row.open()
    row.pass_s(SETTLED_S, row.order)
    lost = row.order()
    row.cloud.link = losing(lost)
    row.pass_s(120, row.order)
    assert row.found() == [("gw-a", 1, lost.id)]


async def test_a_minute_of_which_nothing_came_down_is_lost() -> None:
    row = Row("gw-a")
    await row.open()
    row.pass_s(SETTLED_S, row.order)
    row.pass_s(60)
    lost = row.order()
    row.cloud.link = losing(lost)
    row.pass_s(60)
    row.cloud.link = everything
    row.pass_s(120, row.order)
    assert row.found() == [("gw-a", 1, lost.id)]


async def test_what_the_streamer_between_had_when_it_was_killed_is_lost_between_the_others() -> None:
    row = await settled("gw-a", "gw-m")
    row["gw-m"].link = lambda messages: []
    lost = row.publish(4)
    row.carry()
    await row["gw-m"].restart()
    row["gw-m"].link = everything
    row.pass_s(300, row.publish)
    assert row.found() == [("gw-a", 4, None)]
    assert {each.streamer for each in row.cloud.audit.findings if each.verdict == "unknown"} <= {"gw-m"}
    assert lost


@pytest.mark.parametrize("names", [("gw-a",), ("gw-a", "gw-m")])
async def test_a_link_that_is_away_for_an_hour_is_open_and_then_equal(names: Sequence[str]) -> None:
    row = await settled(*names)
    row.pass_s(120)
    link = row.stations[-2].link = Held()
    row.pass_s(3600, row.publish)
    assert not row.cloud.audit.findings
    link.is_open = True
    row.pass_s(180)
    assert not row.cloud.audit.findings
    assert row.counts["equal"] == row.published


async def test_what_the_streamer_between_still_holds_is_open_though_everybody_has_reported() -> None:
    row = await settled("gw-a", "gw-m")
    middle = row["gw-m"].router.transports["up"]
    middle.set_state(LinkState.DOWN)
    row.pass_s(600, row.publish)
    assert not row.cloud.audit.findings
    middle.set_state(LinkState.UP)
    row.pass_s(180, row.publish)
    assert not row.cloud.audit.findings
    row.pass_s(120)
    assert row.counts["equal"] == row.published


async def test_a_restart_of_the_one_that_compares_names_nothing_lost() -> None:
    row = await settled("gw-a")
    row.pass_s(30, row.publish)
    await row.cloud.restart()
    row.pass_s(300, row.publish)
    assert (row.found("lost"), row.found("twice")) == ([], [])
    assert row.found("unknown")
    (lost,) = row.publish()
    row["gw-a"].link = losing(lost)
    row.pass_s(120, row.publish)
    assert row.found() == [("gw-a", 1, lost.id)]


@pytest.mark.parametrize("is_noted", [True, False])
async def test_a_topic_that_is_no_longer_forwarded_is_unknown(is_noted: bool) -> None:
    row = await settled("gw-a")
    row["gw-a"].link = lambda messages: [each for each in messages if each.attributes.source != SPEED]
    if is_noted:
        assert row.cloud.audit.comparison is not None
        row.cloud.audit.comparison.interest_changed(SPEED, {}, True)
    row.pass_s(240, row.publish)
    assert bool(row.found()) is not is_noted


async def test_what_has_expired_when_it_comes_is_not_lost() -> None:
    row = await settled("gw-a")
    link = row["gw-a"].link = Held()
    row.publish(2, ttl=1000)
    row.publish(2)
    row.pass_s(10)
    link.is_open = True
    row.pass_s(180, row.publish)
    assert not row.cloud.audit.findings


async def test_what_has_expired_between_the_two_is_not_lost_and_what_is_lost_beside_it_is_named() -> None:
    row = await settled("gw-a", "gw-m")
    link = row["gw-a"].link = Held()
    row.publish(2, ttl=1000)
    (lost,) = row.publish()
    row["gw-m"].link = losing(lost)
    row.pass_s(10)
    link.is_open = True
    row.pass_s(180, row.publish)
    assert row.found() == [("gw-a", 1, lost.id), ("gw-m", 1, lost.id)]
    assert len(row.cloud.audit.findings) == 2


async def test_a_take_over_that_sends_the_last_messages_again_is_no_loss() -> None:
    row = await settled("gw-a")
    again: list[UMessage] = row.publish(5)
    row.carry()
    await row["gw-a"].restart()
    row["gw-a"].arrive("down", again)
    row.pass_s(300, row.publish)
    assert (row.found("lost"), row.found("twice")) == ([], [])


async def test_what_comes_twice_over_a_link_is_neither_lost_nor_twice() -> None:
    row = await settled("gw-a")
    row["gw-a"].link = lambda messages: [*messages, *messages]
    row.pass_s(180, row.publish)
    assert not row.cloud.audit.findings


async def test_a_gateway_that_goes_on_under_another_name_loses_nothing() -> None:
    row = await settled("gw-a")
    row.pass_s(30, row.publish)
    old, new = row["gw-a"], Station("gw-s", "hub", row["gw-a"].clock)
    await new.router.router.start()
    leaving = old.audit
    row.stations[0] = new

    def last_rows() -> None:
        leaving.run_once()
        new.local.said, old.local.said = new.local.said + old.local.said, []
        row.publish()

    row.pass_s(400, last_rows)
    assert not row.cloud.audit.findings
    assert row.counts["equal"] > 200 / 5


async def test_a_streamer_that_reports_nothing_is_unknown() -> None:
    row = await settled("gw-a")
    row.pass_s(120)
    said = row["gw-a"].local

    def silent() -> None:
        said.said.clear()
        row.publish()

    row["gw-a"].link = lambda messages: [each for each in messages if each.attributes.source == SPEED]
    row.pass_s(300, row.publish)
    assert not row.cloud.audit.findings
    assert row.cloud.audit.comparison is not None
    assert len(row.cloud.audit.comparison.entries) >= 4


async def test_a_late_message_makes_the_loss_good() -> None:
    row = await settled("gw-a")
    (late,) = row.publish()
    row["gw-a"].link = losing(late)
    row.pass_s(120, row.publish)
    row["gw-a"].link = everything
    row.cloud.arrive("down", [late])
    row.pass_s(60, row.publish)
    (lost, found) = row.cloud.audit.findings
    assert (lost.verdict, found.verdict, found.was) == ("lost", "equal", "lost")
