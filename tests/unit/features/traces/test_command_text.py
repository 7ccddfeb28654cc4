"""How records and their summary are printed: for people, and as JSON."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamer.features.traces.command_text import Printer, as_json, message_lines, rows_of, summary_json, summary_lines
from streamer.features.traces.summary import Summary
from streamer.tools.text import lines_out
from streamer.uprotocol.uuid import format_id, new_id
from tests.unit.features.traces.folders import NAME, NOW_US, Row, failed, row, table

NOW_MS = NOW_US // 1000
QUESTION, OTHER = new_id(NOW_MS), new_id(NOW_MS)


def shown(*rows: Row) -> list[dict[str, Any]]:
    """Records as they are read from files."""
    return [record | {"streamer": NAME} for record in rows_of(table(rows))]


def summed_up(*rows: Row) -> Summary:
    summary = Summary(0)
    summary.add(table(rows).append_column("streamer", pa.array([NAME] * len(rows))).combine_chunks().to_batches()[0])
    return summary


def cells(line: str) -> list[str]:
    return line.split()


# lists of records


def test_records_are_printed_below_a_head_and_later_ones_stay_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(False, shown(row(1)))
    printer.add(shown(row(2, route="a-route-with-a-long-name")))
    printer.add(shown(row(3)))
    head, first, wide, last = capsys.readouterr().out.splitlines()
    assert cells(head)[:4] == ["TIME", "OUTCOME", "UCODE", "ROUTE"]
    assert cells(first)[1:6] == ["delivered", "OK", "vehicle-cloud", "Publish", "//veh1/A8000/2/8A50"]
    assert first.index("Publish") == head.index("TYPE")
    assert last.index("Publish") == wide.index("Publish") > first.index("Publish")


def test_records_are_printed_as_lines_of_json_without_a_head(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(True, shown(row(1))).add(shown(row(2)))
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_json_has_ids_and_times_as_text_and_no_character_beyond_ascii() -> None:
    (record,) = shown(row(1, msg_id=QUESTION, route="über\x1b"))
    text = as_json(record)
    assert text.isascii()
    assert "\x1b" not in text
    found = json.loads(text)
    assert (found["msg_id"], found["route"], found["ts"]) == (format_id(QUESTION), "über\x1b", "2026-11-21T12:30:00.000000Z")


@pytest.mark.parametrize(
    ("latency_us", "text"),
    [(None, "-"), (7, "7µs"), (12_400, "12.4ms"), (1_500_000, "1.5s"), (180_000_000, "3m"), (-12_400, "-12.4ms")],
)
def test_latencies_have_three_digits(latency_us: int | None, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Printer(False, shown(row(1, latency_us=latency_us)))
    assert cells(capsys.readouterr().out.splitlines()[1])[-2] == text


# one message


def test_a_message_is_shown_with_everything_that_its_record_says() -> None:
    lines = list(message_lines(shown(row(1, msg_id=QUESTION, ttl_ms=100, retries=2, redelivered=True)), QUESTION, None))
    facts = dict(line.split(maxsplit=1) for line in lines if not line.startswith("came in"))
    assert facts["id"] == format_id(QUESTION)
    assert facts["outcome"] == "delivered (OK) at 2026-11-21T12:30:00.001000Z"
    assert facts["endpoints"] == "from vehicle (zenoh) to cloud (mqtt5)"
    assert (facts["ttl"], facts["retries"], facts["sink"]) == ("100 ms", "2, redelivered", "-")


def test_a_failed_message_is_shown_with_the_way_to_its_dead_letter() -> None:
    lines = list(message_lines(shown(failed(1, msg_id=QUESTION)), QUESTION, Path("s.yaml")))
    assert lines[-1].endswith(f"streamer dead-letters show --config s.yaml {format_id(QUESTION)}")


def test_a_request_is_shown_with_its_response_or_says_that_none_passed() -> None:
    question = row(1, msg_id=QUESTION, msg_type="request")
    answer = row(2, msg_id=OTHER, msg_type="response", req_id=QUESTION)
    alone = list(message_lines(shown(question), QUESTION, None))
    assert alone[-1] == "no Response to it passed here"
    answered = list(message_lines(shown(question, answer), QUESTION, None))
    assert "its Response:" in answered
    assert alone[-1] not in answered
    assert any(line.split() == ["answers", format_id(QUESTION)] for line in answered)


# sums


def test_the_summary_has_a_line_for_each_route_and_the_reasons_of_failures() -> None:
    lines = list(summary_lines(summed_up(row(1), row(2, latency_us=3000), failed(3, route="up")), 60_000, NOW_MS))
    assert lines[0].startswith("2026-11-21T12:29:00.000Z to 2026-11-21T12:30:00.000Z")
    routes = [cells(line) for line in lines[3:5]]
    assert routes[0][:6] == ["up", "1", "0.0167", "10", "0", "1"]
    assert routes[1][:6] == ["vehicle-cloud", "2", "0.0333", "20", "2", "0"]
    assert ["up", "expired", "DEADLINE_EXCEEDED", "1"] in [cells(line) for line in lines]
    assert lines[-1] == "1 records missing (gaps in seq)"  # number 0 of the run


def test_the_summary_as_json_has_the_same_numbers() -> None:
    found = summary_json(summed_up(row(0), failed(1)), 60_000, NOW_MS)
    assert (found["from"], found["records_missing"]) == ("2026-11-21T12:29:00.000Z", 0)
    assert found["not_delivered"] == [
        {"route": "vehicle-cloud", "outcome": "expired", "ucode": "DEADLINE_EXCEEDED", "messages": 1}
    ]


def test_records_of_a_hostile_file_reach_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;owned\x07\x9b31m\u202e\u2028\x7f"
    texts = (
        *("route", "src_authority", "sink_authority", "msg_type", "priority", "ingress", "egress", "ingress_transport"),
        *("egress_transport", "outcome", "ucode", "traceparent"),
    )
    rows = shown(
        row(1, msg_id=QUESTION, sink_ue_id=1, sink_ue_version=1, sink_resource_id=0, **dict.fromkeys(texts, hostile))
    )
    for is_json in (False, True):
        Printer(is_json, rows).add(rows)
    lines_out(message_lines(rows, QUESTION, None))
    told = summed_up(row(1, route=hostile, outcome="rejected", ucode=hostile))
    lines_out([*summary_lines(told, 1000, NOW_MS), json.dumps(summary_json(told, 1000, NOW_MS))])
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) > 20
    assert [line for line in lines if not line.isprintable()] == []
