"""A daemon whose journal cannot be used when it starts says so, and goes on once it can."""

import json
from pathlib import Path

import pytest

from tests.unit.memory_daemon import Process, running


@pytest.fixture
def process(tmp_path: Path) -> Process:
    """Its files are in a folder that does not exist: a file is in its place."""
    place = tmp_path / "place"
    place.write_text("in the way")
    return Process(tmp_path)


def use(process: Process, section: str) -> Path:
    """Put a section with ``PLACE`` for the folder into the configuration; the folder is returned."""
    place = process.file.parent / "place"
    process.file.write_text(process.file.read_text() + section.replace("PLACE", str(place)) + "\n")
    return place


async def test_readiness_says_why_the_services_cannot_work(process: Process) -> None:
    place = use(process, "journal: {path: PLACE/journal.db}")
    async with running(process):
        await process.ready()
        (since,) = (each["since"] for each in json.loads(process.body("/readyz"))["endpoints"] if each["name"] == "core")
        reasons = [
            f"endpoint core (core) is not connected since {since}",
            f"endpoint core (core): services' tables: {place / 'journal.db.lock'}: Not a directory",
            f"journal: {place / 'journal.db.lock'}: Not a directory",
        ]
        await process.until(lambda: json.loads(process.body("/readyz"))["reasons"] == reasons)
        assert json.loads(process.body("/api/v1"))["reasons"] == reasons
        assert process.samples("ustreamer_endpoint_problems")["core", "core"] == 1
        place.unlink()
        place.mkdir()
        await process.until(lambda: json.loads(process.body("/readyz"))["reasons"] == [])
        assert process.samples("ustreamer_endpoint_problems")["core", "core"] == 0


async def test_log_tells_an_opened_journal_from_one_that_is_in_use(process: Process) -> None:
    place = use(process, "journal: {path: PLACE/journal.db}")
    async with running(process):
        await process.ready()
        assert len(process.events("journal_unavailable")) == 1
        place.unlink()
        place.mkdir()
        await process.until(lambda: bool(process.events("journal_available")))
        names = [line["event"] for line in process.lines() if line.get("file") == str(place / "journal.db")]
        assert [name for name in names if name != "journal_failing"] == [
            "journal_unavailable",
            "journal_opened",
            "state_open",
            "journal_available",
        ]


async def test_a_journal_that_opens_at_once_is_logged_in_the_same_order(process: Process) -> None:
    place = use(process, "journal: {path: PLACE/journal.db}")
    place.unlink()
    place.mkdir()
    async with running(process):
        await process.ready()
        names = [line["event"] for line in process.lines() if line.get("file") == str(place / "journal.db")]
        assert names == ["journal_opened", "journal_available"]
