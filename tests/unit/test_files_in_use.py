"""Files that another streamer uses: a second one ends at its start, before it connects to anything, and says what to do."""

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.ports import free_port
from tests.preloaded import command
from tests.unit.features.api.daemon import running


async def test_a_second_streamer_does_not_start_and_the_first_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    async with running(tmp_path, journal={"path": str(path)}, control={"http_token_file": str(token)}) as first:
        config = tmp_path / "second.yaml"
        config.write_text(yaml.safe_dump(first.raw | {"metrics": {"listen": f"127.0.0.1:{free_port()}"}}))
        there = set(os.listdir(tmp_path))
        ended = await command("run", "--config", config)
        assert ended.returncode == 1  # so that a supervisor tries again
        lines = [json.loads(line) for line in ended.stderr.splitlines()]
        (problem,) = [line["problem"] for line in lines if line["event"] == "not_started"]
        assert problem == (
            f"{config}: journal.path: {path}: another streamer uses it: stop that one, or name another file here"
        )
        assert not {line["event"] for line in lines} & {"endpoint_state", "journal_failing"}
        assert set(os.listdir(tmp_path)) == there
        assert (await first.ask("/readyz", headers={})).status == 200


async def test_what_else_is_wrong_with_the_journal_does_not_end_the_start(tmp_path: Path) -> None:
    (tmp_path / "journal.db.lock").mkdir()
    journal = tmp_path / "journal.db"
    async with running(tmp_path, journal={"path": str(journal)}) as served:
        answer = await served.ask("/readyz", headers={})
        assert answer.status == 503
        assert answer.json["reasons"][1:] == [
            f"{what}: {journal}.lock: Is a directory" for what in ("endpoint core (core): services' tables", "journal")
        ]


async def test_a_start_that_fails_holds_the_journal_no_longer(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with running(tmp_path / "other") as other:
        with pytest.raises(OSError, match="address already in use"):
            async with running(tmp_path, metrics={"listen": f"127.0.0.1:{other.port}"}):
                pass
    async with running(tmp_path) as served:
        assert (await served.ask("/readyz")).status == 200
