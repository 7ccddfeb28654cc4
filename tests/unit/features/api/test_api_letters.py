"""The dead letters in the administration API of a whole daemon."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.api.played import CALLER, METHOD, SECRET, document_of, play, until_letters


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_each_dead_letter_is_on_exactly_one_page(served: DaemonHarness, order: str, limit: int) -> None:
    ids = await play(served)
    seen: list[str] = []
    query: dict[str, Any] = {"limit": limit, "order": order}
    while True:
        page = (await served.ask("/api/v1/dead-letters", **query)).json
        assert page["total"] == 3
        assert page["dead_letters"]  # `next` leads to no empty page
        seen += [letter["id"] for letter in page["dead_letters"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert seen == (ids if order == "oldest" else ids[::-1])


async def test_filters_select_as_the_command_line_does(served: DaemonHarness) -> None:
    ids = await play(served)
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"id": ids[1]}, [1]),
        ({"reason": "DEADLINE_EXCEEDED"}, [0, 1, 2]),
        ({"source": "//veh1/FFFFFFFF/FF/8A50"}, [0, 2]),
        ({"sink": str(METHOD)}, [1]),
        ({"route": "vehicle-cloud"}, []),
        ({"older_than": "1h"}, []),
        ({"newer_than": "1h", "source": str(CALLER)}, [1]),
        ({"newer_than": "999999999999999999w"}, [0, 1, 2]),
        ({"order": "oldest"}, [0, 1, 2]),
        ({"order": "newest"}, [2, 1, 0]),
        ({"order": "newest", "source": "//veh1/FFFFFFFF/FF/8A50"}, [2, 0]),
    ]
    for query, expected in cases:
        page = (await served.ask("/api/v1/dead-letters", **query)).json
        assert [letter["id"] for letter in page["dead_letters"]] == [ids[number] for number in expected], query
        assert page["total"] == len(expected)


async def test_reasons_are_counted_within_a_filter(served: DaemonHarness) -> None:
    await play(served)
    first = (await served.ask("/api/v1/dead-letters", limit=1)).json["dead_letters"][0]["when"]
    last = (await served.ask("/api/v1/dead-letters", limit=1, order="newest")).json["dead_letters"][0]["when"]
    reason = {"reason": "DEADLINE_EXCEEDED", "number": 3, "oldest": first, "newest": last}
    assert (await served.ask("/api/v1/dead-letters/reasons")).json == {"reasons": [reason]}
    (found,) = (await served.ask("/api/v1/dead-letters/reasons", sink=str(METHOD))).json["reasons"]
    assert found["number"] == 1
    assert (await served.ask("/api/v1/dead-letters/reasons", reason="UNAVAILABLE")).json == {"reasons": []}
    assert (await served.ask("/api/v1/dead-letters/reasons", limit=1)).status == 400


async def test_the_newest_dead_letters_come_first_by_pages(served: DaemonHarness) -> None:
    ids = await play(served)
    first = (await served.ask("/api/v1/dead-letters", order="newest", limit=2)).json
    assert [letter["id"] for letter in first["dead_letters"]] == [ids[2], ids[1]]
    last = (await served.ask("/api/v1/dead-letters", order="newest", limit=2, after=first["next"])).json
    assert ([letter["id"] for letter in last["dead_letters"]], last["next"]) == ([ids[0]], None)
    refused = await served.ask("/api/v1/dead-letters", order="latest")
    assert (refused.status, refused.json["error"]) == (400, "query: order: 'latest': expected oldest, newest")


async def test_the_last_letter_that_a_filter_selects_has_no_next_page(served: DaemonHarness) -> None:
    ids = await play(served)
    page = (await served.ask("/api/v1/dead-letters", sink=str(METHOD), limit=1)).json
    assert ([letter["id"] for letter in page["dead_letters"]], page["next"]) == ([ids[1]], None)


async def test_a_dead_letter_is_shown_without_its_token(served: DaemonHarness) -> None:
    await play(served)
    document = await document_of(served)
    shown = []
    for letter in (await served.ask("/api/v1/dead-letters")).json["dead_letters"]:
        asked = await served.ask(f"/api/v1/dead-letters/{letter['number']}")
        shown.append(document.check("get", "/api/v1/dead-letters/{number}", asked)["content"])
        assert SECRET not in asked.text
    assert [each["payload"] for each in shown] == [
        {"text": '{"a": 1}', "left_out_bytes": 0},
        {"hex": "ff00", "left_out_bytes": 0},
        {"text": "", "left_out_bytes": 0},
    ]
    assert [each["token"] for each in shown] == ["present, not shown", "present, not shown", None]
    for number in ("7777777", "0x1", "-", "9" * 30, quote("%00", safe="")):
        assert (await served.ask(f"/api/v1/dead-letters/{number}")).status == 404


async def test_a_dead_letter_from_before_a_file_was_set_aside_is_shown(served: DaemonHarness) -> None:
    await play(served)
    with closing(sqlite3.connect(served.journal)) as file, file:
        file.execute("UPDATE letters SET number = -number")
    for letter in (await served.ask("/api/v1/dead-letters")).json["dead_letters"]:
        assert letter["number"] < 0
        assert (await served.ask(f"/api/v1/dead-letters/{letter['number']}")).json["id"] == letter["id"]


async def test_redrive_and_purge(served: DaemonHarness) -> None:
    ids = await play(served)
    document = await document_of(served)
    numbers = [letter["number"] for letter in (await served.ask("/api/v1/dead-letters")).json["dead_letters"]]
    asked = await served.ask("/api/v1/dead-letters/redrive", {"filter": {"id": ids[1]}, "ttl_ms": 0})
    told = document.check("post", "/api/v1/dead-letters/redrive", asked)
    assert told == {
        "redriven": 0,
        "not_redriven": [
            {"number": numbers[1], "id": ids[1], "source": str(CALLER), "why": "a Request needs a TTL above 0"}
        ],
        "not_redriven_total": 1,
    }
    asked = await served.ask("/api/v1/dead-letters/purge", {"numbers": numbers[:1]})
    assert document.check("post", "/api/v1/dead-letters/purge", asked) == {"purged": 1}
    asked = await served.ask("/api/v1/dead-letters/redrive", {"filter": {"id": ids[2]}, "ttl_ms": 0})
    assert document.check("post", "/api/v1/dead-letters/redrive", asked)["redriven"] == 1
    asked = await served.ask("/api/v1/dead-letters/purge", {"all": True})
    assert document.check("post", "/api/v1/dead-letters/purge", asked)["purged"] >= 1
    await until_letters(served, 0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "body: expected one of filter, all, numbers"),
        ({"all": True, "numbers": [1]}, "body: expected one of filter, all, numbers"),
        ({"all": "yes"}, "body: all: expected true"),
        ({"all": 1}, "body: all: expected true"),
        ({"numbers": []}, "body: numbers: expected 1 to 1000 numbers"),
        ({"numbers": [1.5]}, "body: numbers: expected 1 to 1000 numbers"),
        ({"numbers": [True]}, "body: numbers: expected 1 to 1000 numbers"),
        ({"numbers": [1 << 63]}, "body: numbers: expected 1 to 1000 numbers"),
        ({"filter": {}}, "body: filter: expected an object with some of id, route"),
        ({"filter": {"rout": "x"}}, "body: filter: unknown key 'rout'; expected id, route"),
        ({"filter": {"id": "x"}}, "body: filter: id: 'x': expected the id of a message"),
        ({"filter": {"older_than": 5}}, "body: filter: older_than: expected a text"),
        ({"filter": {"older_than": "5"}}, "body: filter: older_than: '5': expected a number and a unit"),
        ({"filter": {"reason": "BAD"}}, "body: filter: reason: 'BAD': expected one of CANCELLED"),
        ({"filter": {"source": "veh1"}}, "body: filter: source: 'veh1': expected"),
        ({"ALL": True}, "body: unknown key 'ALL'; expected filter, all, numbers"),
    ],
)
@pytest.mark.parametrize("page", ["redrive", "purge"])
async def test_a_selection_says_where_it_is_wrong(
    served: DaemonHarness, page: str, body: dict[str, Any], expected: str
) -> None:
    asked = await served.ask(f"/api/v1/dead-letters/{page}", body)
    assert (asked.status, asked.json["error"][: len(expected)]) == (400, expected)


@pytest.mark.parametrize("raw", [b"no gzip", gzip.compress(b'{"all": true}')], ids=["not", "gzip"])
async def test_a_compressed_body_is_refused(served: DaemonHarness, raw: bytes) -> None:
    """It would be decompressed on the event loop: a megabyte of it holds up all messages for a second."""
    headers = {**served.bearer, "Content-Encoding": "gzip"}
    asked = await served.ask("/api/v1/dead-letters/purge", raw=raw, headers=headers)
    assert (asked.status, asked.json["error"]) == (415, "expected a body without Content-Encoding")


async def test_without_a_journal_dead_letters_are_a_conflict(tmp_path: Path) -> None:
    token = tmp_path / "journal-token"
    token.write_text("0123456789abcdef")
    async with running(tmp_path, journal=None, control={"http_token_file": str(token)}) as served:
        document = await document_of(served)
        asked = await served.ask("/api/v1/dead-letters")
        assert asked.status == 409
        document.check("get", "/api/v1/dead-letters", asked)
        assert (await served.ask("/api/v1")).json["journal"] is None


async def test_a_journal_that_cannot_be_read_is_503(served: DaemonHarness) -> None:
    document = await document_of(served)
    served.journal.rename(served.journal.with_name("away"))
    asked = await served.ask("/api/v1/dead-letters")
    assert asked.status == 503
    document.check("get", "/api/v1/dead-letters", asked)
    count = (await served.ask("/api/v1")).json["journal"]["dead_letters"]
    assert count is None or served.journal.exists()  # the writer has begun a new one meanwhile
    served.journal.with_name("away").rename(served.journal)
