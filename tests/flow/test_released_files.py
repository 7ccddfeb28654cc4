"""What a killed streamer of the released version left behind is used by this one, and nothing of it is lost."""

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from streamer.clock import SystemClock
from streamer.features.every import FILE
from streamer.features.host.earlier_state import write_back
from streamer.features.host.host import ServiceHost
from streamer.features.traces.compact import compact_spool
from streamer.features.traces.layout import Folders
from streamer.features.usubscription.feature import UsubscriptionFeature
from streamer.journal import damage
from streamer.journal.letters import LetterChange
from streamer.main import main
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import TransportContext
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id
from streamer.uprotocol.well_known import LOCAL_ENDPOINT
from tests.clock import FakeClock
from tests.flow.journaled_run import DOWN, JournaledRun, journaled_run
from tests.flow.letters import stored
from tests.hosted import TABLES, HostOn, one_of, served
from tests.unit.features.host.fake_router import FakeRouter
from tests.upgrade.fixtures import Released, released
from tests.waiting import until

RULE = PauseRule.parse("//backend/10/1/9000", "//veh1/C1/1/0")
TOPIC, DOOR = UUri.parse("//veh1/A8000/2/8A50"), UUri.parse("//veh1/A8000/2/8013")
ENDPOINTS = {
    "vehicle": {"transport": "memory", "authorities": ["veh1"]},
    "cloud": {"transport": "memory", "authorities": ["backend"]},
}


@pytest.fixture
def files(tmp_path: Path) -> Released:
    return released(tmp_path)


def sent(run: JournaledRun) -> dict[bytes, UMessage]:
    found = {message.id: message for message in run.harness.sent("vehicle")}
    assert len(found) == len(run.harness.sent("vehicle"))
    return found


# the journal


async def test_what_waited_or_was_unconfirmed_is_delivered_as_it_came(files: Released) -> None:
    clock = FakeClock(files.now_ms)
    async with journaled_run(files.journal, clock=clock, pause_rules=[RULE], unconfirmed_s=1) as run:
        expected = files.messages("queued", "unconfirmed")
        run.harness.pass_time(50)
        assert sent(run) == {message.id: message for message in expected}
        flows: dict[object, list[bytes]] = {}
        for message in expected:
            flows.setdefault(message.attributes.sink, []).append(message.id)
        for sink, ids in flows.items():
            same = [m for m in run.harness.sent("vehicle") if m.attributes.sink == sink]
            for priority in {m.attributes.priority for m in same}:  # classes overtake each other
                kept = [m.id for m in same if m.attributes.priority == priority]
                assert kept == [id_ for id_ in ids if id_ in kept]
        run.harness.router.pause_rules.remove(RULE)
        run.harness.router.apply_pause_rules()
        everything = files.messages("queued", "paused", "unconfirmed")
        assert sent(run) == {message.id: message for message in everything}
        await run.flush()
        run.harness.pass_time(1_050)
        await run.flush()
        assert run.harness.outcomes(DOWN) == {"delivered": len(everything)}
    assert damage.set_aside(files.journal) == []


def written(files: Released, **changes: Any) -> list[str]:
    """The options that name a configuration for these files."""
    path = files.directory / "streamer.yaml"
    path.write_text(yaml.safe_dump(files.configuration(ENDPOINTS) | changes))
    return ["--config", str(path)]


async def test_dead_letters_are_listed_shown_and_redriven(files: Released, capsys: pytest.CaptureFixture[str]) -> None:
    config = written(files)
    dead = files.messages("dead")
    assert main(["dead-letters", "list", "--json", *config]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["id"] for each in listed} == {format_id(message.id) for message in dead}
    assert Counter(each["outcome"] for each in listed) == {"expired": 2, "rejected": 1}
    assert main(["dead-letters", "show", format_id(dead[0].id), *config]) == 0
    assert "too late" in capsys.readouterr().out
    async with journaled_run(files.journal, clock=FakeClock(files.now_ms), pause_rules=[RULE]) as run:
        numbers = [each.number for each in stored(files.journal) if each.route == "cloud-vehicle"]
        assert run.journal.change_letters(LetterChange(numbers, files.now_ms, 86_400_000)) == 2
        late = {message.id: message for message in dead[:2]}
        await until(lambda: late.keys() <= {m.id for m in run.harness.sent("vehicle")}, "the redrive", 10)
        for message in run.harness.sent("vehicle"):
            if message.id in late:
                before = late[message.id]
                assert (message.payload, message.attributes.token) == (before.payload, before.attributes.token)
                assert (message.attributes.source, message.attributes.sink) == (
                    before.attributes.source,
                    before.attributes.sink,
                )
        await run.flush()
    capsys.readouterr()
    assert main(["dead-letters", "list", "--json", *config]) == 0
    assert [json.loads(line)["outcome"] for line in capsys.readouterr().out.splitlines()] == ["rejected"]


# the state file


def services(files: Released) -> tuple[HostOn, FakeRouter]:
    config = FILE.model_validate(files.configuration(ENDPOINTS))
    router = FakeRouter()
    local = LocalTransport(TransportContext(LOCAL_ENDPOINT, "gw"), served(config))
    return HostOn(files.journal, config, local, router, SystemClock()), router


def check_services(host: ServiceHost, router: FakeRouter) -> None:
    """The subscription, the registration, the rule and the observer are there."""
    assert router.interest == {TOPIC: {"backend": 250}, DOOR: {"backend": 0}}
    assert router.pause_rules.rules == (RULE,)
    assert {name: one_of(host.features, UsubscriptionFeature).gauges()[name] for name in ("subscriptions", "observers")} == {
        "subscriptions": 1,
        "observers": 1,
    }


@pytest.mark.needs("pause")
async def test_subscriptions_rules_and_registrations_are_there(files: Released, caplog: pytest.LogCaptureFixture) -> None:
    host, router = services(files)
    host.start()
    check_services(host, router)
    rule = PauseRule.parse("//backend/10/1/9001")
    await host.state.write([("INSERT INTO dispatch_stops (source, sink) VALUES (?, '')", (str(rule.source),))])
    host.close()
    assert damage.set_aside(files.state) == []
    assert [r.getMessage() for r in caplog.records if "file_" in r.message] == [
        f"file_migrated file={files.journal} from_format=1 to_format=1",
        f"file_migrated file={files.state} from_format=0 to_format=1",
    ]
    host, router = services(files)  # it is as our own files are
    host.start()
    assert router.pause_rules.rules == (RULE, rule)
    host.close()


@pytest.mark.needs("judge", "pause")
def test_explain_reads_them_before_any_daemon_has(files: Released, capsys: pytest.CaptureFixture[str]) -> None:
    before = {file.name: file.read_bytes() for file in files.directory.glob("journal-state.db*")}
    routes = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]
    config = written(files, routes=routes)
    assert main(["explain", "--source", str(TOPIC), "--type", "publish", *config]) == 0
    assert "at most one in 250 ms" in capsys.readouterr().out
    asked = ["--source", "//backend/10/1/9000", "--sink", "//veh1/C1/1/0", "--type", "notification"]
    assert main(["explain", *asked, *config]) == 0
    assert "it is paused" in capsys.readouterr().out
    after = {file.name: file.read_bytes() for file in files.directory.glob("journal-state.db*")}
    assert {name: after[name] for name in before if not name.endswith("-shm")} == before


_OPENS = """
import os, sys
from pathlib import Path
from streamer.features.every import FEATURES
from streamer.features.host import earlier_state
from streamer.features.host.host import journal_tables
from streamer.journal.batches import LetterBounds
from streamer.journal.store import Store
setattr(earlier_state, sys.argv[2], lambda *anything: os._exit(9))
Store(Path(sys.argv[1]), LetterBounds(1, 1, 1, 1), tables=journal_tables(FEATURES)).open()
"""


@pytest.mark.needs("pause")
@pytest.mark.parametrize("before", ["_copy", "sign"], ids=["before the copy", "after the copy"])
def test_a_kill_while_the_state_file_is_taken_over_loses_nothing(files: Released, before: str) -> None:
    command = [sys.executable, "-c", _OPENS, str(files.journal), before]
    assert subprocess.run(command, env=os.environ.copy(), check=False).returncode == 9
    with closing(sqlite3.connect(files.state)) as connection:  # an earlier version would use it
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM multicast_receivers").fetchone() == (1,)
    host, router = services(files)
    host.start()
    check_services(host, router)
    host.close()


@pytest.mark.needs("pause")
async def test_the_version_before_gets_everything_back_and_this_one_takes_it_over_again(files: Released) -> None:
    host, _ = services(files)
    host.start()
    added, gone = PauseRule.parse("//backend/10/1/9001"), PauseRule.parse("//backend/10/1/9002")
    sql = "INSERT INTO dispatch_stops (source, sink) VALUES (?, '')"
    await host.state.write([(sql, (str(added.source),))])
    host.close()
    assert formats(files.state) == 2  # the version before refuses it
    write_back(files.journal, TABLES)
    assert formats(files.state) == 1
    with closing(sqlite3.connect(files.state)) as connection:
        assert connection.execute("SELECT source FROM dispatch_stops").fetchall()[1:] == [(str(added.source),)]
        connection.execute(sql, (str(gone.source),))  # as the version before does
        connection.commit()
    host, router = services(files)
    host.start()
    assert router.pause_rules.rules == (RULE, added, gone)
    host.close()


def formats(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


@pytest.mark.needs("pause")
async def test_an_emptied_state_file_takes_nothing_away(files: Released) -> None:
    host, _ = services(files)
    host.start()
    host.close()
    files.state.write_bytes(b"")
    host, router = services(files)
    host.start()
    check_services(host, router)
    host.close()


@pytest.mark.needs("pause")
def test_a_damaged_file_of_the_released_version_keeps_what_can_be_read(files: Released) -> None:
    with closing(sqlite3.connect(files.state)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'usubscription_observers'").fetchone()
    content = bytearray(files.state.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = bytes(4096)
    files.state.write_bytes(content)
    host, router = services(files)
    host.start()
    assert router.interest == {TOPIC: {"backend": 250}, DOOR: {"backend": 0}}
    assert router.pause_rules.rules == (RULE,)
    host.close()
    assert len(damage.set_aside(files.state)) == 1


# traces


def test_traces_are_read_before_and_after_their_spool_is_compacted(
    files: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ["--path", str(files.traces)]

    def found(id_: str) -> list[str]:
        capsys.readouterr()
        assert main(["traces", "find", "--json", str(format_id(bytes.fromhex(id_))), *path]) == 0
        return [json.loads(line)["outcome"] for line in capsys.readouterr().out.splitlines()]

    ids = [*files.books["traced"], *files.books["traced_in_spool"]]
    assert {tuple(found(id_)) for id_ in (ids[0], ids[-1])} == {("delivered",)}
    folders = Folders(files.traces, "gw")
    for spool_file in folders.left_open():  # as the next start does
        spool_file.rename(spool_file.with_suffix(""))
    done = compact_spool(folders, 1 << 30)
    assert (done.torn, done.bad, done.problems, done.files) == (0, 0, [], 1)
    rows = ds.dataset(files.traces, format="parquet", partitioning="hive").to_table(columns=["msg_id", "route", "outcome"])
    crossed = [row for row in rows.to_pylist() if row["route"] == "vehicle-cloud"]
    assert sorted(row["msg_id"].hex() for row in crossed) == sorted(ids)
    assert {row["outcome"] for row in crossed} == {"delivered"}
