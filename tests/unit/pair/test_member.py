"""Who of two sides works, and what is on both disks."""

import os
from pathlib import Path

import pytest

from streamer.delivery.inbound.refusals import FULL
from streamer.pair.notes import Notes, NotesError, read
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import publish
from tests.flow.harness import SPEED
from tests.unit.pair.stations import Stations
from tests.waiting import until


async def test_of_two_that_start_one_works_and_the_other_has_what_it_writes(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "one active, and a whole copy")
    await first.write(2, 4, 6)
    assert second.journal.numbers("rows") == [2, 4, 6]
    await first.write(8, done=(2, 6))
    assert second.journal.numbers("rows") == [4, 8]
    message = publish(1_700_000_000_000, SPEED, b"heard by both")
    second.member.shadows.hear("vehicle", [MemoryReceived(message)])
    first.member.settled.never_queued(message, ("", "vehicle", ""), FULL, 0.0, 0)
    await until(lambda: not len(second.member.shadows), "the other one knows that it is settled")
    assert not second.works


async def test_after_a_kill_the_other_one_works_with_what_waits_and_copies_it_back(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await first.write(2, 4)
    await until(lambda: read(first.path.with_name("pair.json")).shared == 4, "a note of what is shared")
    await first.kill()
    await until(lambda: second.works, "the other one works")
    assert second.member.lease.epoch == read(second.path.with_name("pair.json")).epoch == 2
    assert [each.number for each in second.journal.rows()] == [2, 4]
    await second.write(5, done=(2,))
    await first.start()
    await until(lambda: first.member.is_whole, "a whole copy of what waits now")
    assert first.journal.numbers("rows") == [4, 5]
    assert not first.works
    assert second.works


async def test_what_was_alone_is_copied_again_once_the_other_one_is_back(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await second.kill()
    await until(lambda: first.member.lease.is_alone and first.works, "it works alone")
    await first.write(2)
    await second.start()
    await until(lambda: second.member.is_whole and not first.member.lease.is_alone, "a whole copy, and answers")
    await first.write(4)
    assert second.journal.numbers("rows") == [2, 4]


async def test_with_another_configuration_it_does_not_take_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stations = Stations(tmp_path, config="other")
    first, second = stations.first, stations.second
    for each in (first, second):
        await each.start()
    await until(lambda: second.member.other is not None and first.member.other is not None, "they have met")
    assert not first.member.lease.is_ready
    assert not second.member.lease.is_ready
    assert "pair_configuration is_alike=False" in caplog.text
    for each in (first, second):
        await each.kill()


def test_notes_that_cannot_be_read_say_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    for content in ("", "[]", '{"epoch": -1, "disk": "x"}', '{"epoch": true', '{"epoch": 1}', '{"epoch": "1", "disk": "x"}'):
        path.write_text(content)
        with pytest.raises(NotesError, match=r"pair\.json: expected"):
            read(path)
    path.write_text('{"epoch": 1, "disk": "x", "other": "y", "shared": -1}')
    with pytest.raises(NotesError, match=r"pair\.json: expected"):
        read(path)
    path.unlink()
    assert read(path)[:1] == Notes(0, "")[:1]
    assert os.listdir(tmp_path) == []
