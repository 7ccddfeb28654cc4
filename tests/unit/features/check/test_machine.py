"""What the probes of the machine say of single files and sizes."""

import os
from pathlib import Path

import pytest

from streamer.features.check.machine import _readable, _shown
from streamer.transports.probe import Answer, Verdict
from tests.unit.features.check.probing import of_stores

MIB = 1 << 20


@pytest.mark.parametrize(
    ("content", "verdict"), [("", Verdict.PROBLEM), ("\n", Verdict.PROBLEM), ("\r\n", Verdict.PROBLEM), ("x\n", Verdict.OK)]
)
def test_a_secret_that_is_a_line_end_is_none(tmp_path: Path, content: str, verdict: Verdict) -> None:
    path = tmp_path / "password"
    path.write_text(content)
    path.chmod(0o600)
    assert _readable(path, is_secret=True).verdict is verdict


def test_sizes_are_told_in_three_digits() -> None:
    assert [_shown(size) for size in (999, 1000, 1023 << 20, 72 << 30)] == ["999 bytes", "0.977 KiB", "0.999 GiB", "72 GiB"]


def test_a_folder_that_the_streamer_does_not_make_has_to_exist(tmp_path: Path) -> None:
    below = tmp_path / "new" / "below"
    found = of_stores(journal={"path": str(below / "journal.db"), "max_bytes": 1}, log={"audit": str(below / "audit.log")})
    assert [found[key] for key in ("journal.path", "log.audit")] == [Answer(Verdict.PROBLEM, f"{below} does not exist")] * 2


def disk_of(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """All files are on a disk with so many bytes that are free."""
    disk = os.statvfs_result((1, 1, 0, 0, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: disk)


@pytest.mark.parametrize(("missing", "verdict"), [(0, Verdict.OK), (1, Verdict.PROBLEM)])
@pytest.mark.parametrize("there", [0, 30])
def test_a_journal_needs_room_for_its_log_too_but_not_for_what_is_there_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int, missing: int, verdict: Verdict
) -> None:
    if there:
        (tmp_path / "journal.db").write_bytes(bytes(there - 10))
        (tmp_path / "journal.db-wal").write_bytes(bytes(10))
    disk_of(monkeypatch, 2 * MIB + 32 * MIB - there - missing)
    found = of_stores(journal={"path": str(tmp_path / "journal.db"), "max_bytes": MIB})
    assert found["journal.max_bytes"].verdict is verdict


@pytest.mark.parametrize(("missing", "verdict"), [(0, Verdict.OK), (1, Verdict.PROBLEM)])
def test_the_room_of_one_disk_is_for_journal_and_traces_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int, verdict: Verdict
) -> None:
    """The traces need 30 + 30 bytes, of which 5 are there."""
    (tmp_path / "traces" / "day").mkdir(parents=True)
    (tmp_path / "traces" / "day" / "x.parquet").write_bytes(bytes(5))
    disk_of(monkeypatch, 200 + 32 * MIB + 55 - missing)
    found = of_stores(
        journal={"path": str(tmp_path / "journal.db"), "max_bytes": 100},
        trace={"path": str(tmp_path / "traces"), "max_bytes": 30},
    )
    answer = found["journal.max_bytes, trace.max_bytes"]
    assert answer.verdict is verdict
    assert "32 MiB more may be needed" in answer.text
