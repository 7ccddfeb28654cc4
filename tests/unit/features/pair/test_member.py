"""Who of two sides works, and what is on both disks, also on disks that come back with less than they had."""

import asyncio
import json
import math
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from streamer.delivery.inbound.refusals import FULL
from streamer.features.pair import notes
from streamer.features.pair.mirror import MirroredJournal, disk_of_facts
from streamer.features.pair.notes import Notes, NotesError, read, write
from streamer.journal.entries import Batch
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import publish
from tests.flow.harness import SPEED
from tests.unit.features.pair.stations import PatientClock, Station, Stations, of_message
from tests.unit.journal.harness import execute, letter, letters_in
from tests.waiting import until

MESSAGES = [publish(1_700_000_000_000, SPEED, bytes(500) + b"%d" % number) for number in range(40)]


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
    await first.kill()
    await until(lambda: second.works, "the other one works")
    assert second.member.lease.epoch == read(second.path.with_name("pair.json")).epoch == 2
    assert [each.number for each in second.journal.rows()] == [2, 4]
    await second.write(5, done=(2,))
    await first.start()
    await until(lambda: first.member.is_whole, "a whole copy of what waits now")
    assert first.journal.numbers("rows") == [4, 5]
    assert not first.works
    await until(lambda: second.works, "it goes on")


async def test_without_a_link_nothing_counts_as_copied(stations: Stations) -> None:
    """Also before anything is written: what the other one has when it comes back is not known."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await second.cut()
    await until(lambda: first.member.other is None, "no link")
    assert not first.mirrored.is_copied
    assert not first.member.is_protected


async def test_one_that_starts_without_the_other_says_what_may_be_missing(
    stations: Stations, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await first.write(2)
    assert "pair_may_miss" not in caplog.text
    await second.kill()
    await first.kill()
    await first.start()
    await until(lambda: first.works, "it works alone", within_s=60)
    assert "pair_may_miss consequence=what the other one has accepted" in caplog.text


async def test_what_a_service_was_answered_is_there_after_a_kill_and_after_another_one(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await first.note("one")
    assert second.noted == ["one"]
    await first.kill()
    await until(lambda: second.works, "the other one works")
    await second.note("two")
    await first.start()
    await until(lambda: first.member.is_whole, "a whole copy")
    await second.note("three")
    assert first.noted == second.noted == ["one", "two", "three"]
    await second.kill()
    await until(lambda: first.works, "the first one works again")
    assert first.noted == ["one", "two", "three"]


async def test_after_it_was_alone_what_it_writes_is_on_both_disks_again(stations: Stations) -> None:
    """It hears of the other one before its lease does: what answers has to be told everything once the lease knows, too."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await second.kill()
    await until(lambda: first.member.lease.is_alone, "it is alone")
    await first.write(2)
    await second.start()
    await until(lambda: second.member.is_whole and not first.member.lease.is_alone, "a whole copy")
    await until(lambda: first.protects, "what it writes is on both disks")
    for number in (4, 6, 8):
        said = first.member.lease._number
        await until(lambda said=said: first.member.lease._number > said + 1, "two more heartbeats")  # type: ignore[misc]
        await first.write(number)
        await first.note(str(number))
        assert second.journal.numbers("rows")[-1] == number
        assert second.noted[-1] == str(number)


async def test_one_that_did_not_answer_for_a_while_gets_what_it_has_missed(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    answer, second.member._say_heartbeat = second.member._say_heartbeat, lambda: None  # type: ignore[method-assign]
    await until(lambda: first.member.lease.is_alone, "it is alone, with a link")
    await first.write(2)
    await first.note("missed")
    second.member._say_heartbeat = answer  # type: ignore[method-assign]
    await until(lambda: first.protects, "what it writes is on both disks")
    assert second.journal.numbers("rows") == [2]
    assert second.noted == ["missed"]


async def test_one_whose_journal_opens_late_gets_everything(stations: Stations) -> None:
    """The link is there before: what it was told until then has gone nowhere."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    second.member.end_standby()
    await until(lambda: first.works, "it works")
    first.member._copy_to_other()
    await asyncio.sleep(0)
    second.member.stand_by(second.journal, second.state)
    await until(lambda: second.member.is_whole, "a whole copy")
    await first.write(2)
    await first.note("one")
    assert second.journal.numbers("rows") == [2]
    assert second.noted == ["one"]


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


async def test_nothing_is_handed_over_while_the_other_one_lacks_something(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    assert first.member.why_not_hand_over() == ""
    assert isinstance(first.journal, MirroredJournal)
    first.member._attempts._next_s = math.inf  # no copy is made again
    first.journal.work_alone()
    await first.write(2)
    assert second.journal.numbers("rows") == []
    assert second.member.is_whole  # as far as it knows
    assert "no complete copy" in first.member.why_not_hand_over()


async def test_before_a_handover_the_other_one_has_written_what_it_was_told(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await first.write(2, 4)
    first.journal.write(Batch(rows_done=[2, 4]), lambda: None)
    await first.member.until_stored(60)
    assert second.journal.numbers("rows") == []


async def test_with_another_configuration_it_has_a_copy_and_can_be_the_first_to_be_updated(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_protected, "a whole copy")
    assert (second.member.why_not_ready(), second.member.why_not_whole()) == ("", "")
    second.member.configured("other")
    await until(lambda: not first.member.lease.is_ready, "the other one knows of it")
    await until(lambda: second.member.why_not_whole() == "", "the copy, which begins anew with what they say of themselves")
    assert second.member.why_not_ready() == "the other one has another configuration"
    await first.kill()
    await until(lambda: second.member.other is None, "no link")
    assert second.member.why_not_ready() == second.member.why_not_whole() == "there is no link to the other one"


def test_notes_that_cannot_be_read_say_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    for content in ("", "[]", '{"epoch": -1}', '{"epoch": true', "{}", '{"epoch": "1"}', '{"epoch": 1, "journal": 2}'):
        path.write_text(content)
        with pytest.raises(NotesError, match=r"pair\.json: expected"):
            read(path)
    for refused in ("[1]", '{"cloud": -1}', '{"cloud": true}', "1"):
        path.write_text(f'{{"epoch": 1, "refused": {refused}}}')
        with pytest.raises(NotesError, match=r"pair\.json: expected"):
            read(path)
    path.write_text('{"epoch": 3, "journal": "x", "of_a_newer_version": [1]}')
    assert read(path) == Notes(3, "x")
    path.write_text('{"epoch": 3, "disk": "x", "other": "y", "shared": 9}')  # of an earlier version
    assert read(path) == Notes(3)
    path.unlink()
    assert read(path) == Notes(0)
    assert os.listdir(tmp_path) == []


def test_earlier_versions_find_a_disk_in_the_notes_which_is_never_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    disks = set()
    for _ in range(2):
        write(path, Notes(3, "x"))
        disks.add(json.loads(path.read_bytes())["disk"])
    assert len(disks) == 2


async def test_each_reports_which_foreign_nodes_it_is_connected_to(stations: Stations) -> None:
    first, second = stations.first, stations.second
    first.foreign = {"vehicle": {"b2", "a1"}, "trailer": set()}
    second.foreign = {"vehicle": {f"{number:032x}" for number in range(300)}}
    await until(lambda: second.member.reports.latest.nodes and first.member.reports.latest.nodes, "a report")
    told = {
        each.endpoint: (list(each.ids), each.count)
        for each in second.member.reports.latest.nodes
        if each.endpoint != "cloud"
    }
    assert told == {"vehicle": (["a1", "b2"], 2), "trailer": ([], 0)}
    (many,) = first.member.reports.latest.nodes
    assert (list(many.ids), many.count) == (sorted(second.foreign["vehicle"])[:256], 300)


async def test_a_standby_whose_copy_was_given_up_says_so_and_has_another_one_within_seconds(stations: Stations) -> None:
    """Its disk has everything that it was sent, and that is not what is so."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected and second.member.is_protected, "a whole copy")
    first.mirrored._give_up("a test")
    await first.write(2)
    assert second.member.is_whole
    await until(lambda: not second.member.is_protected, "it knows")
    assert second.member.why_not_ready() == "the active one does not rest on the copy here: a test"
    await until(lambda: first.member.is_protected and second.member.is_protected, "another copy", within_s=10)
    assert second.journal.numbers("rows") == [2]


async def test_over_a_link_that_carries_nothing_the_standby_knows_nothing(stations: Stations) -> None:
    """Heartbeats go beside it, so nobody takes over."""
    first, second = stations.first, stations.second
    first.aside, second.aside = [second.member_hears], [first.member_hears]
    await until(lambda: first.works and second.member.is_protected, "a whole copy")
    send, first.link.send = first.link.send, lambda frame: True  # type: ignore[method-assign]
    await until(lambda: not second.member.is_protected, "it does not know any more")
    assert "nothing has come over the link" in second.member.why_not_whole()
    assert not second.works
    first.link.send = send  # type: ignore[method-assign]
    await until(lambda: second.member.is_protected, "it knows again")


async def test_a_link_that_carries_one_way_only_gets_no_copy_until_it_carries_both(stations: Stations) -> None:
    first, second = stations.first, stations.second
    first.aside, second.aside = [second.member_hears], [first.member_hears]
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    send, first.link.send = first.link.send, lambda frame: True  # type: ignore[method-assign]
    writing = asyncio.create_task(first.write(2))  # it waits for the standby
    await until(lambda: first.mirrored.is_alone, "it works alone", within_s=20)
    await writing
    await until(lambda: not first.member.reports.is_answered(first.member._clock.monotonic_s()), "nothing is answered")
    assert not first.mirrored.is_copied
    first.link.send = send  # type: ignore[method-assign]
    await until(lambda: second.member.is_protected, "another copy", within_s=10)
    assert second.journal.numbers("rows") == [2]


async def test_a_standby_that_does_not_hear_what_the_active_one_hears_says_so_on_both_sides(stations: Stations) -> None:
    first, second = stations.first, stations.second
    first.foreign, second.foreign = {"vehicle": {"a1", "b2"}}, {"vehicle": {"a1"}}
    await until(lambda: first.works and second.member.is_protected, "a whole copy")
    await until(lambda: first.member.lacking and second.member.lacking, "both know")
    assert first.member.lacking.text == second.member.why_not_ready()
    assert first.member.lacking.text.endswith("connected to: b2 at endpoint vehicle")
    assert first.member.why_not_hand_over() == ""  # at a stop, it is better than nobody
    second.foreign = {"vehicle": {"a1", "b2", "c3"}}
    await until(lambda: not first.member.lacking and second.member.why_not_ready() == "", "both hear the same")


@pytest.mark.parametrize("lacked", ["b2 at endpoint vehicle", "the broker at endpoint cloud"])
async def test_links_that_the_active_one_closes_as_it_ends_do_not_hide_what_the_standby_lacks(
    stations: Stations, lacked: str
) -> None:
    first, second = stations.first, stations.second
    first.foreign, second.foreign = {"vehicle": {"b2"}}, {"vehicle": set()}
    if "broker" in lacked:
        first.foreign = second.foreign = {}
        second.accepts, second.reaches = {"cloud": False}, []
        second.member._reach.refused.clear()
    await until(lambda: first.works and second.member.is_protected, "a whole copy")
    await until(lambda: first.member.lacking.text.endswith(lacked) and second.member.lacking, "both know")
    first.drains = True
    first.foreign, first.reaches = {}, []
    await until(lambda: not second.member.lacking, "it has reported that it closed them")
    assert first.member.lacking.text.endswith(lacked)


async def test_a_standby_that_cannot_connect_to_a_broker_of_the_active_one_says_so_on_both_sides(stations: Stations) -> None:
    """Else a handover would cut what is behind that broker off."""
    first, second = stations.first, stations.second
    second.accepts, second.reaches = {"cloud": False}, []
    second.member._reach.refused.clear()
    await until(lambda: first.works and second.member.is_protected, "a whole copy")
    await until(lambda: first.member.lacking and second.member.lacking, "both know")
    assert first.member.lacking.text == second.member.why_not_ready()
    assert first.member.lacking.text.endswith("connected to: the broker at endpoint cloud")
    assert (len(first.member.lacking), len(second.member.lacking)) == (1, 1)
    second.accepts = {"cloud": True}
    await until(lambda: not first.member.lacking and second.member.why_not_ready() == "", "it can")
    assert second.member.untried == [
        "this one was never connected to the broker of endpoint cloud, which accepts connections"
    ]
    assert first.member.untried == []


async def test_a_broker_that_has_refused_the_standby_is_lacking_until_it_may_be_tried_again(stations: Stations) -> None:
    first, second = stations.first, stations.second
    second.accepts = {"cloud": True}
    await until(lambda: first.works and second.member.is_protected, "a whole copy")
    second.member._reach.refused["cloud"] = 1
    await until(lambda: first.member.lacking.text.endswith("the broker at endpoint cloud"), "the active one knows")
    second.member._reach.refused["cloud"] = 0
    await until(lambda: not first.member.lacking, "it was connected since")
    assert second.member.untried == []


async def test_programs_with_a_session_for_each_are_named_once_and_hold_up_nothing(
    stations: Stations, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ustreamer.pair")
    first, second = stations.first, stations.second
    first.foreign, second.foreign = {"vehicle": {"a1", "b1"}}, {"vehicle": {"a2", "b2"}}
    await until(lambda: first.works and second.member.is_protected, "a whole copy")
    await until(lambda: caplog.text.count("pair_nodes_separate nodes=2") == 2, "both name them")
    assert (first.member.lacking.text, second.member.why_not_ready()) == ("", "")
    second.foreign = {"vehicle": {"a2"}}
    await until(lambda: bool(first.member.lacking), "one program has lost its other session")
    second.foreign = {"vehicle": {"a2", "b3"}}
    await until(lambda: not first.member.lacking, "it is back")
    assert caplog.text.count("pair_nodes_separate") == 2


async def test_clocks_and_client_ids_that_differ_are_named_on_both_sides(
    stations: Stations, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = stations.first, stations.second
    for each, session in ((first, "the client id 'a'"), (second, "the client id 'b'")):
        each.member._identity = each.member._identity._replace(sessions={"cloud": session})
        each.member._greet()
    ahead = PatientClock()
    monkeypatch.setattr(ahead, "wall_ms", lambda: int(time.time() * 1000) + 3_600_000)
    second.member._clock = ahead
    await until(lambda: len(first.member.differences) == len(second.member.differences) == 2, "both know")
    assert "about 3600 s ahead of this one's" in first.member.differences["clock"]
    assert "about 3600 s behind this one's" in second.member.differences["clock"]
    assert "the two have different client ids at cloud" in first.member.differences["client id"]
    assert "pair_differs what=clock" in caplog.text
    assert "pair_differs what=client id" in caplog.text
    second.member._clock = first.member._clock
    await until(lambda: len(first.member.differences) == 1, "the clock was set")


async def test_two_that_have_the_same_place_say_so(tmp_path: Path) -> None:
    """They never get a link, and hear each other beside it."""
    (tmp_path / "other").mkdir()
    first, other = Stations(tmp_path).first, Stations(tmp_path / "other").first
    for each in (first, other):
        await each.start()
    first.aside, other.aside = [other.member_hears, first.member_hears], []
    await until(lambda: bool(other.member.differences), "it knows")
    assert "has the same place in the pair" in other.member.differences["place"]
    assert first.member.differences == {}  # its own words are no other one's
    for each in (first, other):
        await each.kill()


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
    await first.note("one")
    await second.kill()
    await first.kill()
    for table in ("noted", "lineage"):  # as in a file that was salvaged
        execute(first.path, f"DELETE FROM {table}")
    await first.start()
    await second.start()
    await until(lambda: first.works and second.member.is_whole, "the first one works, with empty tables")
    assert (first.noted, second.noted) == ([], ["one"])
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
