"""A daemon whose journal or state file cannot be used when it starts says so, and goes on once it can."""

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


async def test_readiness_says_why_the_state_file_cannot_be_used(process: Process) -> None:
    place = use(process, "state: {path: PLACE/state.db}")
    async with running(process):
        await process.ready()
        reasons = [
            "endpoint core (core) is not connected",
            f"endpoint core (core): state file: {place / 'state.db.lock'}: Not a directory",
        ]
        with_reasons = {"ready": False, "reasons": reasons}
        await process.until(lambda: json.loads(process.body("/readyz")) == with_reasons)
        assert json.loads(process.body("/api/v1"))["reasons"] == reasons
        assert process.samples("ustreamer_endpoint_problems")["core", "core"] == 1
        place.unlink()
        place.mkdir()
        await process.until(lambda: json.loads(process.body("/readyz")) == {"ready": True, "reasons": []})
        assert process.samples("ustreamer_endpoint_problems")["core", "core"] == 0
