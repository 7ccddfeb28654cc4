"""``streamer traces find``."""

from pathlib import Path
from uuid import UUID

import pytest

from streamer.uprotocol.uuid import format_id, new_id
from tests.unit.features.traces.folders import HOUR_US, NOW_US, SpoolFileWriter, failed, numbers, row, write_part
from tests.unit.tools.commands import Run


@pytest.mark.parametrize("form", ["{}", "{{{}}}", "urn:uuid:{}", "upper", "digits"])
def test_an_id_is_found_in_any_usual_form(run: Run, folder: Path, form: str) -> None:
    record = row(0)
    write_part(folder, [record, row(1)])
    text = format_id(record["msg_id"])
    word = {"upper": text.upper(), "digits": text.replace("-", "")}.get(form) or form.format(text)
    status, out, _ = run("find", word, "--json")
    assert (status, numbers(out)) == (0, [0])


def test_everything_about_a_request_and_its_response_is_shown(run: Run, folder: Path) -> None:
    sink = {"sink_authority": "cloud", "sink_ue_id": 0xB0, "sink_ue_version": 1, "sink_resource_id": 0x10}
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    call = row(0, 9000, msg_type="request", ttl_ms=500, traceparent=trace, retries=2, redelivered=True, **sink)
    again = call | {"seq": 1, "ts": call["ts"] + 100, "outcome": "duplicate", "ucode": "ALREADY_EXISTS"}
    answer = row(2, 1000, msg_type="response", req_id=call["msg_id"])
    write_part(folder, [answer])
    SpoolFileWriter(folder).write(call, again, row(3))
    status, out, err = run("find", format_id(call["msg_id"]))
    assert (status, err) == (0, "")
    first, second, head_and_third = out.split("\n\n")
    facts = dict(line.split(None, 1) for line in first.splitlines())
    assert facts["id"] == format_id(call["msg_id"])
    assert facts["outcome"] == "delivered (OK) at 2026-11-21T12:29:59.992000Z"
    assert facts["sink"] == "//cloud/B0/1/10"
    assert facts["endpoints"] == "from vehicle (zenoh) to cloud (mqtt5)"
    assert facts["ttl"] == "500 ms"
    assert facts["retries"] == "2, redelivered"
    assert facts["traceparent"] == trace
    assert "duplicate (ALREADY_EXISTS)" in second
    assert head_and_third.startswith("its Response:\n")
    assert format_id(answer["msg_id"]) in head_and_third
    assert "dead-letters" not in out


def test_a_failure_says_where_its_dead_letter_is(run: Run, folder: Path) -> None:
    record = failed(0, msg_type="request")
    write_part(folder, [record])
    lines = run("find", format_id(record["msg_id"]))[1].splitlines()
    command = f"streamer dead-letters show --config FILE {format_id(record['msg_id'])}"
    assert f"its dead letter, unless somebody has redriven or purged it: {command}" in lines
    assert "no Response to it passed here" in lines


def test_after_a_redrive_no_letter_is_named_that_is_gone(run: Run, folder: Path) -> None:
    record = failed(0)
    arrived = record | {"seq": 1, "ts": record["ts"] + 100, "outcome": "delivered", "ucode": "OK", "redelivered": True}
    write_part(folder, [record, arrived])
    out = run("find", format_id(record["msg_id"]))[1]
    assert "dead-letters show" not in out
    assert "may have left" not in out
    assert out.splitlines()[-1] == "it failed first, and its dead letter was redriven"


def test_of_two_copies_that_failed_the_letter_that_is_left_is_named(run: Run, folder: Path) -> None:
    """One went over another route, and its failure is not undone by what arrived there."""
    record = failed(0)
    elsewhere = failed(1, msg_id=record["msg_id"], route="up-too")
    arrived = record | {"seq": 2, "ts": record["ts"] + 100, "outcome": "delivered", "ucode": "OK", "redelivered": True}
    again = record | {"seq": 3, "ts": record["ts"] + 200}
    for rows, is_named in (([record, elsewhere, arrived], True), ([record, arrived, again], True)):
        for old in folder.rglob("*.parquet"):
            old.unlink()
        write_part(folder, rows)
        assert ("dead-letters show" in run("find", format_id(record["msg_id"]))[1]) is is_named


@pytest.mark.parametrize(("hours_after", "is_found"), [(-3, False), (-1, True), (0, True), (24, True), (26, False)], ids=str)
def test_hours_around_the_messages_creation_are_searched(run: Run, folder: Path, hours_after: int, is_found: bool) -> None:
    made_us = NOW_US - 30 * HOUR_US
    record = row(0, 30 * HOUR_US - hours_after * HOUR_US, msg_id=new_id(made_us // 1000))
    write_part(folder, [record])
    word = format_id(record["msg_id"])
    status, out, err = run("find", word, "--json")
    assert (status, bool(out)) == ((0, True) if is_found else (1, False))
    if not is_found:
        assert err.splitlines() == [
            "searched: the hours 2026-11-20T05h to 2026-11-21T06h (UTC), and what is not compacted yet; "
            "--all searches every file",
            "no such record",
        ]
    assert numbers(run("find", word, "--json", "--all")[1]) == [0]


def test_other_hours_are_not_opened(run: Run, folder: Path) -> None:
    record = row(0)
    write_part(folder, [record])
    (far,) = write_part(folder, [row(1, 40 * HOUR_US)])
    far.write_bytes(b"not Parquet")
    assert run("find", format_id(record["msg_id"]))[::2] == (0, "")
    status, _, err = run("find", format_id(record["msg_id"]), "--all")
    assert status == 74
    assert err.startswith(f"{far}: cannot be read")


def test_an_id_without_a_time_is_searched_everywhere(run: Run, folder: Path) -> None:
    other = UUID("7d444840-9dc0-41d1-b245-5ffdce74fad2").bytes  # version 4
    write_part(folder, [row(0, 50 * HOUR_US, msg_id=other, msg_ts=None, age_us=None)])
    assert run("find", format_id(other))[0] == 0


@pytest.mark.parametrize("column", ["msg_ts", "run_ts", "latency_us"])
def test_a_time_beyond_the_year_9999_in_a_file_of_another_program_is_shown_as_a_number(
    run: Run, folder: Path, column: str
) -> None:
    far_us = 281_474_976_710_655_000  # the largest of an id
    record = row(0, **{column: far_us})
    write_part(folder, [record, row(1)])
    for words in (("find", "--all", format_id(record["msg_id"])), ("tail",)):
        status, text, err = run(*words)
        assert (status, err) == (0, "")
        assert words[0] == "tail" or column == "latency_us" or f"{far_us} µs" in text
        status, text, err = run(*words, "--json")
        assert (status, err) == (0, "")
        assert str(far_us) in text
