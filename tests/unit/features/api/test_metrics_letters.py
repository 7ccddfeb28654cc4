"""Dead letters that are lost before they are on disk are counted where operators look."""

from pathlib import Path

import pytest

from streamer.delivery.custody import new_letters
from streamer.features.api.metrics import Exposition
from streamer.journal.journal import Journal
from tests.flow.harness import RouterHarness
from tests.unit.journal.harness import BOUNDS


@pytest.mark.parametrize(
    ("bound", "is_accepted"), [("_MAX_LETTERS", True), ("_MAX_REJECTED", False)], ids=["accepted", "never accepted"]
)
async def test_letters_that_the_disk_does_not_take_are_counted_once_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, is_accepted: bool
) -> None:
    monkeypatch.setattr(new_letters, bound, 2)
    (tmp_path / "occupied").write_text("no directory")
    journal = Journal(tmp_path / "occupied" / "j.db", 1 << 20, BOUNDS, lambda call, *args: None)
    assert journal.start(lambda: None).wait(10)
    try:
        async with RouterHarness(journal=journal) as harness:
            harness.transports["cloud"].lose_link()
            messages = [harness.notify(b"%d" % number, ttl=1000) for number in range(5)]
            if not is_accepted:
                harness.pass_time(2000)
            harness.arrive("vehicle", *messages)
            dropped = b"\nustreamer_journal_dead_letters_dropped_total %d.0\n"
            assert (dropped % 0 in Exposition(harness.router).text()) == is_accepted
            harness.pass_time(2000)
            assert dropped % 3 in Exposition(harness.router).text()
    finally:
        journal.stop(10)
