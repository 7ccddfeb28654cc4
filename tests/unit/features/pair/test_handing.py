"""What one side hands to the other: its role, what it has accepted alone, and what both need to know for that."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.features.pair import member, reach
from streamer.features.pair.notes import read
from streamer.journal.codec import PackedFlow, pack_flow, pack_record, pack_segment
from streamer.journal.entries import Batch, CorruptEntryError, Row, Segment
from streamer.journal.journal import JournalState
from streamer.uprotocol.message import publish
from tests.flow.harness import SPEED
from tests.unit.features.pair.stations import Stations, of_message
from tests.unit.journal.harness import row
from tests.waiting import until


async def test_what_one_has_accepted_alone_is_handed_to_the_other_that_works_since(
    stations: Stations, caplog: pytest.LogCaptureFixture
) -> None:
    """Each message once it is safe there, rows as well as segments; another endpoint's stay."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await second.kill()
    await until(lambda: first.member.lease.is_alone, "it works alone")
    messages = [publish(1_700_000_000_000, SPEED, b"%d" % number) for number in range(4)]
    rows = [of_message(number, message) for number, message in zip((2, 4, 6), messages, strict=False)]
    rows.append(of_message(8, messages[0])._replace(source="gone"))
    rows.append(of_message(12, messages[1])._replace(source=""))  # a notice about a dead letter
    flow = PackedFlow("r", "vehicle", "cloud", "=", messages[3].attributes)
    packed = pack_segment([pack_flow(flow)], list(pack_record(0, 99, 0, messages[3])))
    await first.write_batch(Batch(rows=rows, segments=[Segment(10, "cloud", packed)]))
    await first.kill()
    await second.start()
    await until(lambda: second.works, "the other one works alone", within_s=60)
    await first.start()
    await until(lambda: len(second.adopted) == 4, "they are handed over")
    assert [each.message for each in second.adopted] == messages
    assert "pair_offer_refused endpoint=gone messages=1" in caplog.text
    assert "messages=2" not in caplog.text
    assert len(first.journal.numbers("rows")) == 5
    for each in second.adopted:
        each.release()
    await until(
        lambda: len(first.journal.numbers("rows")) == 2 and not first.journal.numbers("segments"), "only these are left"
    )


async def test_one_that_cannot_write_is_not_waited_for_and_is_copied_to_once_it_can(
    stations: Stations, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    monkeypatch.setattr(second.member, "_problem", lambda: "the disk is full")
    await until(lambda: not first.member.is_protected, "it is known")
    await first.write(2)
    assert "pair_alone reason=the other one cannot write: the disk is full" in caplog.text
    assert first.member.why_not_hand_over() == "the other one cannot write its journal: the disk is full"
    monkeypatch.undo()
    await until(lambda: first.member.is_protected, "a whole copy again")
    assert second.journal.numbers("rows") == [2]


async def test_it_wants_to_hand_over_to_one_that_reaches_more(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    second.reaches = ["cloud"]
    first.reaches = ["vehicle"]
    await until(lambda: list(first.member.reports.latest.reaches) == ["cloud"], "a report")
    assert first.wants == ""  # each reaches what the other one does not
    second.reaches = ["cloud", "vehicle"]
    await until(lambda: first.wants != "", "it wants to")
    assert first.wants == "there is no link to cloud, and the other one can reach more"
    first.member.hand_over()
    await until(lambda: second.works, "the other one works")
    assert first.has_stepped_back
    assert second.member.why == "the other hands over"


async def test_one_that_could_not_connect_something_is_not_handed_over_to_again_for_its_sake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that accepts TCP and refuses CONNECT: the roles would change every few seconds, for ever."""
    stations = Stations(tmp_path)
    first, second = stations.first, stations.second
    second.reaches = ["vehicle"]
    for each in (first, second):
        await each.start()
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await until(lambda: read(first.path.with_name("pair.json")).refused == {"vehicle": 0, "cloud": 0}, "it has had both")
    second.accepts, first.reaches = {"cloud": True}, ["vehicle"]
    await until(lambda: first.wants != "", "it wants to hand over")
    assert first.wants == "there is no link to cloud, and the other one has never tried cloud"
    assert read(first.path.with_name("pair.json")).refused == {"vehicle": 0, "cloud": 1}
    first.member.hand_over()
    await until(lambda: second.works, "the other one works")
    await first.kill()
    first.reaches, first.accepts = ["vehicle"], {"cloud": True}
    await first.start()
    await until(lambda: second.member.is_protected and list(second.member.reports.latest.reaches) == ["vehicle"], "a report")
    said = second.member.lease._number
    await until(lambda: second.member.lease._number > said + 10, "longer than `prefer_s`")
    assert second.wants == ""
    assert list(second.member.reports.latest.reaches) == ["vehicle"]
    monkeypatch.setattr(reach, "STEADY_S", 0.5)
    first.reaches = ["vehicle", "cloud"]  # it is connected: that is no guess
    await until(lambda: read(first.path.with_name("pair.json")).refused == {"vehicle": 0, "cloud": 0}, "it has it")
    for each in (first, second):
        await each.kill()


async def test_a_handover_over_the_journal_is_no_attempt_at_an_endpoint(
    stations: Stations, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    monkeypatch.setattr(member, "_PATIENCE_S", 0.5)
    first.reaches = second.reaches = ["vehicle"]
    first.mirrored._problem, first.mirrored._state = "the disk is full", JournalState.FAILING
    await until(lambda: first.wants != "", "it wants to hand over")
    assert first.wants == "the journal cannot be written: the disk is full"
    assert read(first.path.with_name("pair.json")).refused == {"vehicle": 0, "cloud": 0}


async def test_an_entry_with_a_lower_number_that_was_written_alone_later_is_handed_over_too(stations: Stations) -> None:
    """Entries are not written in the order of their numbers: what the other one has up to 8 does not say that it has 2."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await first.write_batch(Batch(rows=[of_message(8, publish(1_700_000_000_000, SPEED, b"eight"))]))
    await second.kill()
    await until(lambda: first.member.lease.is_alone, "it works alone")
    two = publish(1_700_000_000_000, SPEED, b"two")
    await first.write_batch(Batch(rows=[of_message(2, two)]))
    await first.kill()
    await second.start()
    await until(lambda: second.works, "the other one works alone", within_s=60)
    await first.start()
    await until(lambda: two in [each.message for each in second.adopted], "it is handed over")


async def test_what_was_on_its_way_when_the_link_broke_is_not_taken_for_shared(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await first.write_batch(Batch(rows=[of_message(8, publish(1_700_000_000_000, SPEED, b"eight"))]))
    second.member.end_standby()  # it hears, and stores nothing any more
    writing = asyncio.create_task(first.write_batch(Batch(rows=[of_message(2, publish(1, SPEED, b"two"))])))
    await until(lambda: not first.mirrored.is_stored, "it is told")
    await second.kill()
    await writing
    assert first.mirrored.disk.given.below == 2


async def test_a_disk_that_was_replaced_is_not_taken_for_the_one_before(
    stations: Stations, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await first.write(8)
    await second.kill()
    for each in second.path.parent.iterdir():
        each.unlink()
    first.journal.rows = unreadable  # type: ignore[method-assign]
    await second.start()
    await until(lambda: "pair_copy_failed reason=the journal cannot be read" in caplog.text, "the copy is given up")
    assert first.mirrored.disk.given.disk != second.member._disk.name  # type: ignore[union-attr]
    assert not first.member.is_protected
    assert second.member.why_not_ready() != ""


def unreadable(everything: bool = False, first: int = 0) -> Iterator[Row]:
    yield row(8)
    raise CorruptEntryError("damaged")


async def test_what_the_active_one_cannot_take_holds_up_nothing_and_stays(
    stations: Stations, caplog: pytest.LogCaptureFixture
) -> None:
    """More than may be on the way at a time, of an endpoint that is gone; and one that cannot be read."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await second.kill()
    await until(lambda: first.member.lease.is_alone, "it works alone")
    message = publish(1_700_000_000_000, SPEED, bytes(4000))
    gone = [of_message(2 * number, message)._replace(source="gone") for number in range(1, 601)]
    unreadable = row(1202, b"\xff")._replace(source=of_message(1, message).source)
    await first.write_batch(Batch(rows=[*gone, unreadable, of_message(1204, message)]))
    await first.kill()
    await second.start()
    await until(lambda: second.works, "the other one works alone", within_s=60)
    await first.start()
    await until(lambda: len(second.adopted) == 1, "it is handed over")
    for each in second.adopted:
        each.release()
    await until(lambda: len(first.journal.numbers("rows")) == 601, "only these are left")
    await until(lambda: any("601 messages" in each for each in first.member.differences.values()), "it says so")
