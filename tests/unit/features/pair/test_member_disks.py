"""Disks that come back with less than they had, after both were killed: what the other disk has is not lost."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from streamer.features.pair import notes
from streamer.features.pair.mirror import disk_of_facts
from streamer.journal.entries import Batch
from streamer.uprotocol.message import publish
from tests.flow.harness import SPEED
from tests.unit.features.pair.stations import Station, Stations, of_message
from tests.unit.journal.harness import execute, letter, letters_in
from tests.waiting import until

MESSAGES = [publish(1_700_000_000_000, SPEED, bytes(500) + b"%d" % number) for number in range(40)]


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _without_journal(folder: Path) -> None:
    for each in folder.glob("journal.db*"):
        each.unlink()


def _with_a_bad_page(folder: Path) -> None:
    path = folder / "journal.db"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 4096)
        file.write(b"\xff" * 4096)


def _restored(folder: Path) -> None:
    _empty(folder)
    shutil.copytree(folder.with_name("copy"), folder, dirs_exist_ok=True)


async def _killed(stations: Stations) -> tuple[Station, Station]:
    """Messages and a dead letter wait on both disks; of the folder of the active one there is a copy with fewer of them."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    rows = [of_message(2 * number + 2, message) for number, message in enumerate(MESSAGES)]
    await first.write_batch(Batch(rows=rows[:10]))
    shutil.copytree(first.path.parent, first.path.parent.with_name("copy"))
    await first.write_batch(Batch(rows=rows[10:], letters=[letter(90, 90)], rows_done=[2]))
    for each in (first, second):
        await each.kill()
    return first, second


def offered(standby: Station, active: Station) -> list[int]:
    """What is on standby only; the active one takes what is offered to it."""
    for each in active.adopted:
        each.release()
    active.adopted.clear()
    return sorted(set(standby.journal.numbers("rows")) - set(active.journal.numbers("rows")))


HARMS = [_empty, _without_journal, _with_a_bad_page, _restored]


@pytest.mark.parametrize("harm", HARMS)
async def test_of_two_that_come_back_together_the_one_that_has_more_works(
    stations: Stations, harm: Callable[[Path], None]
) -> None:
    first, second = await _killed(stations)
    harm(first.path.parent)
    for each in (first, second):
        await each.start()
    await until(lambda: second.works and first.member.is_whole, "the second one works, and has a copy")
    assert len(second.journal.numbers("rows")) == len(MESSAGES) - 1
    await until(lambda: not offered(first, second), "nothing is left to be offered", within_s=60)
    assert first.journal.numbers("rows") == second.journal.numbers("rows")
    assert letters_in(first.path) == letters_in(second.path)


@pytest.mark.parametrize("harm", [_without_journal, pytest.param(_restored, marks=pytest.mark.long)])
async def test_of_one_that_comes_first_with_less_the_other_one_deletes_nothing(
    stations: Stations, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """It offers what the first one may lack, as it arrived."""
    first, second = await _killed(stations)
    harm(first.path.parent)
    await first.start()
    await until(lambda: first.works, "it works alone", within_s=60)
    assert "pair_may_miss" in caplog.text
    await second.start()
    await until(lambda: len(first.adopted) == len(MESSAGES) - 1, "everything is offered")
    assert {each.message.payload for each in first.adopted} == {message.payload for message in MESSAGES[1:]}
    assert len(second.journal.numbers("rows")) >= len(MESSAGES) - 1
    for each in first.adopted:
        each.release()
    await until(lambda: second.journal.numbers("rows") == first.journal.numbers("rows"), "what it has taken is gone")
    assert [name for _, name in letters_in(second.path)] == ["r"]


async def test_a_state_file_that_is_lost_is_got_back_by_a_handover(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await first.pause("one")
    await second.kill()
    await first.kill()
    for table in ("dispatch_stops", "lineage"):  # as in a file that was salvaged
        execute(first.path, f"DELETE FROM {table}")
    await first.start()
    await second.start()
    await until(lambda: first.works and second.member.is_whole, "the first one works, with empty tables")
    assert (first.paused, second.paused) == ([], ["one"])
    await until(lambda: first.wants != "", "it wants to hand over")
    assert first.wants == "the other one has subscriptions, pause rules or last values that are lost here"


async def test_a_journal_that_is_salvaged_while_it_works_is_another_disk(stations: Stations) -> None:
    """The standby has what is lost here, and offers it."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await first.write_batch(Batch(rows=[of_message(2, MESSAGES[0])]))
    name = first.mirrored.disk.name
    first.path.unlink()
    await first.write_batch(Batch(rows=[of_message(4, MESSAGES[1])]))
    await until(lambda: first.mirrored.disk.name != name and second.member.is_whole, "another disk, and another copy")
    await until(lambda: MESSAGES[0] in [each.message for each in first.adopted], "what is lost comes back")


async def test_a_journal_that_is_salvaged_on_standby_gets_everything_again(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await first.write_batch(Batch(rows=[of_message(2, MESSAGES[0])]))
    second.path.unlink()
    await first.write_batch(Batch(rows=[of_message(4, MESSAGES[1])]))
    await until(lambda: second.journal.files_set_aside == 1, "it is salvaged")
    await until(lambda: second.journal.numbers("rows")[:2] == [2, 4] and second.member.is_whole, "another copy")
    assert first.works


async def test_one_that_goes_on_in_a_higher_epoch_has_that_on_disk_and_so_has_its_copy(stations: Stations) -> None:
    """Else the disk of a standby that has worked in an earlier one would have more, whatever this one accepts alone."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    second.member.lease.epoch = 7  # it has worked while the first one was away, and the disk of that has come back empty
    await until(lambda: first.member.lease.epoch == 8, "the first one goes on")
    await until(lambda: first.mirrored.disk.content[0] == 8 and first.member.is_protected, "another whole copy")
    await first.write(2)
    disk = second.member._disk
    assert disk is not None
    assert disk.content == first.mirrored.disk.content == (8, 1)
    await first.kill()
    with closing(sqlite3.connect(first.path)) as file:
        facts = dict(file.execute("SELECT name, value FROM facts"))
    assert disk_of_facts(facts, 0, parity=0).content == (8, 1)


def test_a_pipe_in_the_place_of_a_pairs_notes_is_refused(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "journal-pair.json")
    with pytest.raises(notes.NotesError, match="not a regular file"):
        notes.read(path)
