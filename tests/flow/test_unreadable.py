"""The journal cannot be read now (no descriptors, EIO): what is in it waits; nothing is lost and nothing dies."""

import sqlite3
from pathlib import Path

import pytest

from streamer.journal import reading
from streamer.journal.entries import JournalError
from streamer.journal.sqlite import connect as journal_connect
from streamer.transports.base import Presence
from tests.flow.journaled_run import journaled_run, order
from tests.flow.unconfirmed import reach


def fails(number: int) -> bytes:
    raise JournalError("unable to open database file")


async def test_spilled_payload_that_cannot_be_read_now_waits(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", memory=1) as run:
        run.hold()
        run.harness.arrive("cloud", *(order(run.harness, b"%d" % n) for n in range(5)))
        await run.flush()
        assert run.harness.router.custody.payloads.spilled
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run.journal, "row_body", fails)
            run.harness.transports["vehicle"].release_withheld()
            run.harness.pass_time(100)
        run.harness.pass_time(1000)
        assert [m.payload for m in run.harness.sent("vehicle")] == [b"%d" % n for n in range(5)]


async def test_segment_that_cannot_be_read_now_waits(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", memory=1, unconfirmed_s=10) as run:
        run.harness.arrive("cloud", *(order(run.harness, b"%d" % n) for n in range(5)))
        await run.flush()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run.journal, "segment_body", fails)
            reach(run.harness, Presence.ABSENT)
            reach(run.harness, Presence.PRESENT)
            run.harness.pass_time(100)
        run.harness.pass_time(1000)
        assert [m.payload for m in run.harness.sent("vehicle")] == 2 * [b"%d" % n for n in range(5)]


async def test_recovery_that_cannot_read_now_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with journaled_run(tmp_path / "j.db") as before:
        before.hold()
        before.harness.arrive("cloud", *(order(before.harness, b"%d" % n) for n in range(5)))
        await before.flush()
    calls: list[Path] = []

    def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
        calls.append(path)
        if len(calls) == 1:
            raise sqlite3.OperationalError("unable to open database file")
        return journal_connect(path, read_only)

    monkeypatch.setattr(reading, "connect", connect)
    async with journaled_run(tmp_path / "j.db") as after:
        assert after.harness.router.recovery_progress
        after.recover()
        assert not after.harness.router.recovery_progress
        assert [m.payload for m in after.harness.sent("vehicle")] == [b"%d" % n for n in range(5)]
