"""The pages for dead letters: list, show, redrive, purge.

The journal's file is read on a thread, over a connection of its own; the journal makes the changes.
Only these pages use the threads, and each page handles one request at a time, so nothing else waits for a thread.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Event
from typing import Any, TypeVar
from uuid import UUID

from aiohttp import web

from streamer.features.api.access import caller_of, refused, shows_payloads
from streamer.features.api.answers import API, MAX_LIMIT, PROLONG, RequestQuery, bad, body_of, one_of, pattern, whole
from streamer.features.api.request_queue import RequestQueue, one_at_a_time
from streamer.features.record import RunningStreamer
from streamer.journal.entries import JournalError
from streamer.journal.letter_acts import MAX_TTL_MS, Redriven, UnreadableLetterError, message_of, purge, redrive
from streamer.journal.letter_json import code_name, content_json, summary_json
from streamer.journal.letters import LetterChange, LetterFile, LetterFilter, open_letters
from streamer.journal.moments import as_moment, milliseconds
from streamer.journal.sqlite import CorruptFileError
from streamer.logs.audit import audit
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uuid import DAY_MS, format_id

ORDERS = ("oldest", "newest")
"""The orders of a list: which dead letters come first."""

FILTERS = ("id", "route", "reason", "source", "sink", "older_than", "newer_than")

_LAST = (1 << 63) - 1  # below 0: letters from before the file was set aside and renumbered

_ACT_S = 3600.0  # a hundred thousand letters take minutes; clients that may change are trusted

_THREADS = 3  # one for the list, one for a single letter, one for changes

T = TypeVar("T")


class LetterPages:
    """The dead letters in the journal of a `RunningStreamer`."""

    def __init__(self, running: RunningStreamer) -> None:
        self._running = running
        self._changes = RequestQueue()
        self._threads = ThreadPoolExecutor(_THREADS, "dead-letters")

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [
            web.get(f"{API}/dead-letters", one_at_a_time(self._list)),
            web.get(f"{API}/dead-letters/reasons", one_at_a_time(self._reasons)),
            web.get(f"{API}/dead-letters/{{number}}", one_at_a_time(self._show)),
            web.post(f"{API}/dead-letters/redrive", self._redrive),
            web.post(f"{API}/dead-letters/purge", self._purge),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        now_ms = self._running.router.clock.wall_ms()
        query = RequestQuery(request, (*FILTERS, "order", "limit", "after"))
        selected = letter_filter(query.read, now_ms)
        limit = query.limit()
        after = query.read("after", lambda text: whole(text, -_LAST, _LAST))

        newest_first = query.read("order", one_of(ORDERS)) == "newest"

        def find(file: LetterFile) -> str:
            found = file.find(selected, after, limit, newest_first=newest_first)
            total, total_bytes = file.count(selected)
            more = len(found) == limit and bool(file.find(selected, found[-1].number, 1, newest_first=newest_first))
            page = {
                "dead_letters": [summary_json(letter, now_ms) for letter in found],
                "next": found[-1].number if more else None,
                "total": total,
                "total_bytes": total_bytes,
            }
            return json.dumps(page)  # a thousand take 20 ms

        return web.json_response(text=await self._on_thread(find))

    async def _reasons(self, request: web.Request) -> web.Response:
        query = RequestQuery(request, FILTERS)
        selected = letter_filter(query.read, self._running.router.clock.wall_ms())
        found = await self._on_thread(lambda file: file.reasons(selected))
        reasons = [
            {"reason": code_name(code), "number": number, "oldest": as_moment(first_ms), "newest": as_moment(last_ms)}
            for code, number, first_ms, last_ms in found
        ]
        return web.json_response({"reasons": reasons})

    @shows_payloads
    async def _show(self, request: web.Request) -> web.Response:
        now_ms = self._running.router.clock.wall_ms()
        RequestQuery(request, ())
        try:
            number = whole(request.match_info["number"], -_LAST, _LAST)
        except ValueError:
            raise refused("no such dead letter", web.HTTPNotFound) from None

        def show(file: LetterFile) -> dict[str, Any] | None:
            for letter in file.find(LetterFilter(numbers=(number,))):
                try:
                    return {
                        **summary_json(letter, now_ms),
                        "content": content_json(letter, message_of(letter, file), now_ms),
                        "problem": None,
                    }
                except UnreadableLetterError as exc:
                    return {**summary_json(letter, now_ms), "content": None, "problem": str(exc)}
            return None

        shown = await self._on_thread(show)
        if shown is None:
            raise refused("no such dead letter", web.HTTPNotFound)
        audit("payload_shown", **caller_of(request)._asdict(), letter=number, id=shown["id"])
        return web.json_response(shown)

    async def _redrive(self, request: web.Request) -> web.Response:
        now_ms = self._running.router.clock.wall_ms()
        body = await body_of(request, ("filter", "all", "numbers", "ttl_ms"))
        selected = _selected(body, now_ms)
        ttl_ms = body.get("ttl_ms")
        if ttl_ms is not None and not (type(ttl_ms) is int and 0 <= ttl_ms <= MAX_TTL_MS):
            raise bad(f"body: ttl_ms: expected a whole number from 0 (no end) to {MAX_TTL_MS}, or null")
        by = caller_of(request)

        def act(file: LetterFile) -> Redriven:
            done = redrive(file, self._changed, selected, now_ms, ttl_ms, go_on)
            if done.going:  # also if the client has closed the connection
                audit("redriven", **by._asdict(), letters=done.going)
            return done

        async with self._change(request) as go_on:
            done = await self._on_thread(act)
        return web.json_response(
            {
                "redriven": done.going,
                "not_redriven": [
                    {
                        "number": each.letter.number,
                        "id": format_id(each.letter.id),
                        "source": each.letter.source,
                        "why": each.why,
                    }
                    for each in done.named
                ],
                "not_redriven_total": done.staying,
            }
        )

    async def _purge(self, request: web.Request) -> web.Response:
        body = await body_of(request, ("filter", "all", "numbers"))
        selected = _selected(body, self._running.router.clock.wall_ms())
        by = caller_of(request)

        def act(file: LetterFile) -> int:
            purged = purge(file, self._changed, selected, go_on)
            if purged:
                audit("purged", **by._asdict(), letters=purged)
            return purged

        async with self._change(request) as go_on:
            purged = await self._on_thread(act)
        return web.json_response({"purged": purged})

    @asynccontextmanager
    async def _change(self, request: web.Request) -> AsyncIterator[Callable[[], bool]]:
        """Wait until no other change runs. Yields a function that returns whether the client still waits for this one."""
        request.app[PROLONG](request, _ACT_S)
        is_over = Event()
        async with self._changes.admit(request):
            try:
                yield lambda: not is_over.is_set()
            finally:
                is_over.set()

    def _changed(self, change: LetterChange) -> int:
        journal = self._running.router.journal
        assert journal is not None  # the file that was opened is the journal's
        return journal.change_letters(change)

    async def _on_thread(self, work: Callable[[LetterFile], T]) -> T:
        journal = self._running.router.journal
        if journal is None:
            raise refused("journal: null: dead letters are kept in the journal only", web.HTTPConflict)

        def run() -> T:
            with open_letters(journal.path) as file:
                return work(file)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        except (JournalError, CorruptFileError) as exc:
            text = f"the journal cannot be used now: {journal.problem or exc}"
            raise refused(text, web.HTTPServiceUnavailable, {"Retry-After": "1"}) from exc


def _selected(body: dict[str, Any], now_ms: int) -> LetterFilter:
    """Return the selection in a body: a filter, all, or numbers. Raises an HTTP error."""
    given = [name for name in ("filter", "all", "numbers") if name in body]
    if len(given) != 1:
        raise bad("body: expected one of filter, all, numbers")
    value = body[given[0]]
    if given == ["all"]:
        if value is not True:
            raise bad("body: all: expected true")
        return LetterFilter()
    if given == ["numbers"]:
        if not isinstance(value, list) or not 0 < len(value) <= MAX_LIMIT or not all(map(_is_number, value)):
            raise bad(f"body: numbers: expected 1 to {MAX_LIMIT} numbers of dead letters")
        return LetterFilter(numbers=tuple(value))
    if not isinstance(value, dict) or not value:
        raise bad(f"body: filter: expected an object with some of {', '.join(FILTERS)}")
    if unknown := value.keys() - set(FILTERS):
        raise bad(f"body: filter: unknown key {min(unknown)[:40]!r}; expected {', '.join(FILTERS)}")

    def read(name: str, read: Callable[[str], T]) -> T | None:
        if name not in value:
            return None
        if not isinstance(value[name], str):
            raise bad(f"body: filter: {name}: expected a text")
        try:
            return read(value[name])
        except ValueError as exc:
            raise bad(f"body: filter: {name}: {exc}") from exc

    return letter_filter(read, now_ms)


def _is_number(value: object) -> bool:
    return type(value) is int and -_LAST <= value <= _LAST


def letter_filter(read: Callable[[str, Callable[[str], Any]], Any], now_ms: int) -> LetterFilter:
    """Return the filter from values. ``read(name, convert)`` returns a value as ``convert`` makes it from the text."""
    older_ms, newer_ms = (read(name, milliseconds) for name in ("older_than", "newer_than"))
    return LetterFilter(
        id=read("id", _id),
        route=read("route", str),
        code=read("reason", _code),
        source=read("source", pattern),
        sink=read("sink", pattern),
        until_ms=None if older_ms is None else max(0, now_ms - older_ms),
        since_ms=None if newer_ms is None else max(0, now_ms - newer_ms),
        ahead_ms=now_ms + DAY_MS,
    )


def _id(text: str) -> bytes:
    try:
        return UUID(text).bytes
    except ValueError:
        raise ValueError(f"{text[:40]!r}: expected the id of a message (a UUID)") from None


def _code(text: str) -> UCode:
    names = [code.name for code in UCode if code]
    if text not in names:
        raise ValueError(f"{text[:40]!r}: expected one of {', '.join(names)}")
    return UCode[text]
