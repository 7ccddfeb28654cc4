"""The pages for dead letters: list, show, redrive, purge.

The journal's file is read and changed on a thread, over a connection of its own, as by the command line without a daemon.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from aiohttp import web

from streamer.admin.access import caller_of, refused, shows_payloads
from streamer.admin.answers import API, RequestQuery, pattern, whole
from streamer.admin.running import RunningStreamer
from streamer.journal.entries import JournalError
from streamer.journal.letter_acts import UnreadableLetterError, message_of
from streamer.journal.letter_facts import content, facts
from streamer.journal.letters import LetterFile, LetterFilter, open_letters
from streamer.journal.moments import milliseconds
from streamer.journal.sqlite import CorruptFileError
from streamer.logs.audit import audit
from streamer.uprotocol.status import UCode

FILTERS = ("id", "route", "reason", "source", "sink", "older_than", "newer_than")

_LAST = (1 << 63) - 1  # and below 0 are those that were there before the file was set aside and numbered anew

T = TypeVar("T")


class LetterPages:
    """The dead letters in the journal of a `RunningStreamer` streamer."""

    def __init__(self, running: RunningStreamer) -> None:
        self._running = running

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return [
            web.get(f"{API}/dead-letters", self._list),
            web.get(f"{API}/dead-letters/{{number}}", self._show),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        now_ms = self._running.router.clock.wall_ms()
        query = RequestQuery(request, (*FILTERS, "limit", "after"))
        selected = letter_filter(query.read, now_ms)
        limit = query.limit()
        after = query.read("after", lambda text: whole(text, -_LAST, _LAST))

        def find(file: LetterFile) -> dict[str, Any]:
            found = file.find(selected, after, limit)
            total, total_bytes = file.count(selected)
            more = len(found) == limit and bool(file.find(selected, found[-1].number, 1))
            return {
                "dead_letters": [facts(letter, now_ms) for letter in found],
                "next": found[-1].number if more else None,
                "total": total,
                "total_bytes": total_bytes,
            }

        return web.json_response(await self._on_thread(find))

    @shows_payloads
    async def _show(self, request: web.Request) -> web.Response:
        now_ms = self._running.router.clock.wall_ms()
        RequestQuery(request, ())
        try:
            number = whole(request.match_info["number"], 0, _LAST)
        except ValueError:
            raise refused("no such dead letter", web.HTTPNotFound) from None

        def show(file: LetterFile) -> dict[str, Any] | None:
            for letter in file.find(LetterFilter(numbers=(number,))):
                try:
                    return {**facts(letter, now_ms), "content": content(message_of(letter, file)), "problem": None}
                except UnreadableLetterError as exc:
                    return {**facts(letter, now_ms), "content": None, "problem": str(exc)}
            return None

        shown = await self._on_thread(show)
        if shown is None:
            raise refused("no such dead letter", web.HTTPNotFound)
        audit("payload_shown", **caller_of(request)._asdict(), letter=number, id=shown["id"])
        return web.json_response(shown)

    async def _on_thread(self, work: Callable[[LetterFile], T]) -> T:
        journal = self._running.router.journal
        if journal is None:
            raise refused("journal: null: dead letters are kept in the journal only", web.HTTPConflict)

        def run() -> T:
            with open_letters(journal.path) as file:
                return work(file)

        try:
            return await asyncio.to_thread(run)
        except (JournalError, CorruptFileError) as exc:
            text = f"the journal cannot be used now: {journal.problem or exc}"
            raise refused(text, web.HTTPServiceUnavailable, {"Retry-After": "1"}) from exc


def letter_filter(read: Callable[[str, Callable[[str], Any]], Any], now_ms: int) -> LetterFilter:
    """The filter in the values that ``read`` gives: by their name, as a function makes something of each."""
    older_ms, newer_ms = (read(name, milliseconds) for name in ("older_than", "newer_than"))
    return LetterFilter(
        id=read("id", _id),
        route=read("route", str),
        code=read("reason", _code),
        source=read("source", pattern),
        sink=read("sink", pattern),
        until_ms=None if older_ms is None else now_ms - older_ms,
        since_ms=None if newer_ms is None else now_ms - newer_ms,
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
