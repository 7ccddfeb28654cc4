"""``streamer traces tail``, and what is wrong usage of all three."""

import json
import os
from pathlib import Path

import pytest

from streamer.uprotocol.uuid import format_id, new_id
from tests.unit.features.traces.folders import HOUR_US, SpoolFileWriter, failed, numbers, row, write_part
from tests.unit.tools.commands import Run


def test_the_last_outcomes_are_printed_the_newest_last(run: Run, folder: Path) -> None:
    long_wait = row(3, 3 * HOUR_US, latency_us=3 * HOUR_US - 1)  # came in first, ended last
    write_part(folder, [row(0, 9000), row(1, 5000), long_wait])
    spool = SpoolFileWriter(folder)
    spool.write(row(2, 3000))
    status, out, err = run("tail", "--json")
    assert (status, err) == (0, "")
    assert numbers(out) == [0, 1, 2, 3]
    assert numbers(run("tail", "-n", "2", "--json")[1]) == [2, 3]


def test_people_get_a_table(run: Run, folder: Path) -> None:
    sink = {"sink_authority": "cloud", "sink_ue_id": 0xB0, "sink_ue_version": 1, "sink_resource_id": 0x10}
    rows = [row(0, 9000), failed(1, 0, latency_us=2_500_000, msg_type="request", **sink)]
    write_part(folder, rows)
    status, out, _ = run("tail")
    lines = out.splitlines()
    assert status == 0
    assert lines[0].split() == ["TIME", "OUTCOME", "UCODE", "ROUTE", "TYPE", "SOURCE", "SINK", "SIZE", "LATENCY", "ID"]
    assert lines[1].split()[1:] == [
        *("delivered", "OK", "vehicle-cloud", "Publish", "//veh1/A8000/2/8A50", "→", "-", "10", "1ms"),
        format_id(rows[0]["msg_id"]),
    ]
    assert lines[2].split() == [
        *("2026-11-21T12:30:02.500000Z", "expired", "DEADLINE_EXCEEDED", "vehicle-cloud", "Request"),
        *("//veh1/A8000/2/8A50", "→", "//cloud/B0/1/10", "10", "2.5s", format_id(rows[1]["msg_id"])),
    ]


def test_a_record_that_is_being_compacted_is_printed_once(run: Run, folder: Path) -> None:
    rows = [row(seq, 10_000 - seq) for seq in range(4)]
    spool = SpoolFileWriter(folder)
    spool.write(*rows)
    spool.close()
    write_part(folder, rows)
    assert numbers(run("tail", "--json")[1]) == [0, 1, 2, 3]
    assert numbers(run("tail", "--json", "-n", "3")[1]) == [1, 2, 3]


@pytest.mark.parametrize("torn_bytes", [1, 4, 7, 8, 200, -1], ids=str)
def test_what_is_complete_before_a_torn_end_is_printed(run: Run, folder: Path, torn_bytes: int) -> None:
    spool = SpoolFileWriter(folder)
    whole = spool.write(row(0, 3000))
    end = spool.write(row(1, 2000))
    os.truncate(spool.path, (whole if torn_bytes > 0 else end) + torn_bytes)
    status, out, err = run("tail", "--json")
    assert (status, numbers(out), err) == (0, [0], "")


def test_a_spool_file_without_anything_in_it_is_no_error(run: Run, folder: Path) -> None:
    spool = SpoolFileWriter(folder)
    os.truncate(spool.path, 0)
    assert run("tail") == (1, "", "no such record\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--outcome", "expired"], [1, 3]),
        (["--outcome", "Dead-Lettered"], []),
        (["--route", "cloud-vehicle"], [2, 3]),
        (["--route", "cloud-vehicle", "--outcome", "expired"], [3]),
        (["--route", "vehicle"], []),
        (["--route", ""], []),
        (["--outcome", "expired,delivered", "--route", "cloud-vehicle"], [2, 3]),
        (["--outcome", "rejected,expired"], [1, 3]),
        (["--outcome", "expired", "-n", "1"], [3]),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_parquet", [True, False], ids=["parquet", "spool"])
def test_filters_combine(run: Run, folder: Path, words: list[str], expected: list[int], is_parquet: bool) -> None:
    back = {"route": "cloud-vehicle"}
    rows = [row(0, 4000), failed(1, 3000), row(2, 2000, **back), failed(3, 1000, **back)]
    if is_parquet:
        write_part(folder, rows)
    else:
        SpoolFileWriter(folder).write(*rows)
    status, out, _ = run("tail", "--json", *words)
    assert (status, numbers(out)) == (0 if expected else 1, expected)


def test_json_has_every_column_and_the_streamer(run: Run, folder: Path) -> None:
    name = "a/b%c"
    record = row(0, req_id=new_id(7))
    write_part(folder, [record], streamer=name)
    (line,) = run("tail", "--json")[1].splitlines()
    found = json.loads(line)
    assert found == record | {
        "ts": "2026-11-21T12:30:00.000000Z",
        "msg_ts": "2026-11-21T12:29:59.998000Z",
        "run_ts": "2026-11-21T07:30:00.000000Z",
        "msg_id": format_id(record["msg_id"]),
        "req_id": format_id(record["req_id"]),
        "streamer": name,
        **dict.fromkeys(("version", "compiled", "config")),  # an older file has none of these
    }


@pytest.mark.parametrize("words", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize("action", ["tail", "find"])
def test_a_terminal_gets_nothing_to_obey(run: Run, folder: Path, action: str, words: list[str]) -> None:
    evil = "a\x1b[31m\x9b2J\nb"
    sink = {"sink_authority": evil, "sink_ue_id": 1, "sink_ue_version": 1, "sink_resource_id": 1}
    record = row(0, route=evil, src_authority=evil, ingress=evil, traceparent=evil, **sink)
    write_part(folder, [record], streamer=evil)
    out = run(action, *words, *([format_id(record["msg_id"])] if action == "find" else []))[1]
    assert "a" in out
    assert all(char.isprintable() or char == "\n" for char in out)
    assert not [line for line in out.splitlines() if line.startswith("b")]


def test_columns_that_an_older_file_lacks_are_null(run: Run, folder: Path) -> None:
    record = row(0)
    write_part(folder, [record], without=["traceparent", "redelivered", "age_us"])
    found = json.loads(run("tail", "--json")[1])
    assert (found["traceparent"], found["redelivered"], found["age_us"]) == (None, None, None)
    assert run("find", format_id(record["msg_id"]))[0] == 0
    assert run("summary")[0] == 0


def test_files_older_than_what_is_printed_are_not_opened(run: Run, folder: Path) -> None:
    (old,) = write_part(folder, [row(0, 2 * HOUR_US)])
    when = old.stat().st_mtime_ns
    old.write_bytes(b"not Parquet")
    os.utime(old, ns=(when, when))
    write_part(folder, [row(1, 3000), row(2, 2000)])
    assert run("tail", "--json", "-n", "2")[0] == 0
    status, out, err = run("tail", "--json", "-n", "3")
    assert (status, numbers(out)) == (74, [1, 2])
    assert err.startswith(f"{old}: cannot be read: ")


# wrong usage


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tail", "--outcome", "expird"], "'expird': expected one of delivered, expired"),
        (["tail", "--outcome", "delivered,expird"], "'expird': expected one of"),
        (["tail", "--outcome", "expird"], "did you mean 'expired'?"),
        (["tail", "-n", "-1"], "'-1': expected a number of records"),
        (["tail", "-n", "many"], "'many': expected a number of records"),
        (["summary", "--last", "1"], "'1': expected a number and a unit"),
        (["summary", "--last", "0h"], "'0h': expected a duration above 0"),
        (["find", "7"], "'7': expected the id of a message (a UUID)"),
    ],
    ids=str,
)
def test_wrong_arguments_are_explained(run: Run, words: list[str], expected: str) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert expected in err


def config(tmp_path: Path, trace: str) -> tuple[str, str]:
    path = tmp_path / "streamer.yaml"
    path.write_text(f"""\
authority: gateway.veh1
endpoints:
  vehicle: {{transport: memory, authorities: [veh1], options: {{bus: traces-vehicle}}}}
routes: []
trace: {trace}
""")
    return "--config", str(path)


def test_the_folder_comes_from_the_configuration(run: Run, folder: Path, tmp_path: Path) -> None:
    record = failed(0)
    write_part(folder, [record])
    where = config(tmp_path, f"{{path: {folder}}}")
    assert numbers(run("tail", "--json", where=where)[1]) == [0]
    assert f"dead-letters show {' '.join(where)} " in run("find", format_id(record["msg_id"]), where=where)[1]


def test_a_configuration_without_traces_is_reported(run: Run, tmp_path: Path) -> None:
    where = config(tmp_path, "null")
    assert run("tail", where=where) == (78, "", f"{where[1]}: trace: null: no traces are written\n")


def test_a_missing_folder_is_reported(run: Run, tmp_path: Path) -> None:
    where = ("--path", str(tmp_path / "nowhere"))
    assert run("summary", where=where) == (74, "", f"{tmp_path}/nowhere: No such file or directory\n")


def test_an_empty_folder_has_no_records(run: Run) -> None:
    assert run("tail") == (1, "", "no such record\n")


def test_either_a_configuration_or_a_folder_is_needed(run: Run) -> None:
    status, _, err = run("tail", where=())
    assert status == 2
    assert "no configuration file: --config is not given" in err
