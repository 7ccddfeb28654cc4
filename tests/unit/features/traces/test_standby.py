"""The events of a pair: links and runs are of the streamer that works, not of the one on standby."""

from pathlib import Path

from tests.unit.features.pair.daemons import pair
from tests.unit.features.traces.recorded import events_below
from tests.waiting import until


async def test_one_on_standby_writes_no_events_and_begins_with_its_links_when_it_takes_over(tmp_path: Path) -> None:
    begun = [("started", None), ("up", "cloud"), ("up", "vehicle")]
    ended = [("down", "cloud"), ("down", "vehicle"), ("stopped", None)]
    traced = {name: {"trace": {"path": str(tmp_path / f"traces-{name}")}} for name in "ab"}
    async with pair(tmp_path, **traced) as two:
        standby, config = two.standby, two.standby.daemon.config
        standby.transport("cloud").lose_link()
        standby.transport("cloud").restore_link()
        assert two.active is two.harnesses[0]
        two.active.daemon.stop()
        await until(lambda: standby.daemon.has_started, "the take-over")
    found = events_below(tmp_path / "traces-b", config.authority)
    assert (found[0], sorted(found[1:3]), sorted(found[3:-1]), found[-1]) == (begun[0], begun[1:], ended[:-1], ended[-1])
