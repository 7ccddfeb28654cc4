"""Access to dead letters for the commands: through the running daemon, or to read in the journal's file if none runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

from streamer.config.models import Config
from streamer.journal.letter_acts import UnreadableLetterError, message_of
from streamer.journal.letter_json import content_json, summary_json
from streamer.journal.letters import LetterFile, LetterFilter, open_letters
from streamer.journal.lock import is_in_use
from streamer.tools.running import UNFIT, DaemonAddress, NobodyThereError, ask, configured, unfit
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import DAY_MS, format_id

_PAGE_LETTERS = 500
_ACT_S = 3600.0  # a hundred thousand letters take minutes

LetterFields = dict[str, Any]
"""A letter as a JSON object (`streamer.journal.letter_json`)."""


class StayingLetter(NamedTuple):
    """A letter that is not redriven."""

    id: str
    source: str
    why: str


class RedriveAnswer(NamedTuple):
    """How many letters are redriven, and which stay. ``staying`` may have fewer than ``staying_total``."""

    going: int
    staying: list[StayingLetter]
    staying_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A selection of letters; None means any."""

    id: bytes | None = None
    route: str | None = None
    reason: UCode | None = None
    source: UUri | None = None
    sink: UUri | None = None
    older_than_ms: int | None = None
    newer_than_ms: int | None = None

    def as_filter(self, now_ms: int) -> LetterFilter:
        """Return the selection for the journal's file."""
        return LetterFilter(
            id=self.id,
            route=self.route,
            code=self.reason,
            source=self.source,
            sink=self.sink,
            until_ms=None if self.older_than_ms is None else max(0, now_ms - self.older_than_ms),
            since_ms=None if self.newer_than_ms is None else max(0, now_ms - self.newer_than_ms),
            ahead_ms=now_ms + DAY_MS,
        )

    def as_texts(self) -> dict[str, str]:
        """Return the selection as parameters of the administration API."""
        texts = {
            "id": None if self.id is None else format_id(self.id),
            "route": self.route,
            "reason": None if self.reason is None else self.reason.name,
            "source": None if self.source is None else str(self.source),
            "sink": None if self.sink is None else str(self.sink),
            "older_than": None if self.older_than_ms is None else f"{self.older_than_ms}ms",
            "newer_than": None if self.newer_than_ms is None else f"{self.newer_than_ms}ms",
        }
        return {name: text for name, text in texts.items() if text is not None}


class Letters(Protocol):
    """Reads dead letters, in the file or through the daemon."""

    def find(self, wanted: Wanted, *, newest_first: bool = False) -> Iterator[LetterFields]:
        """Yield the matching letters, oldest or newest first."""

    def shown(self, wanted: Wanted) -> Iterator[LetterFields]:
        """Yield the matching letters with their messages: ``content``, or None and a ``problem``."""


class LettersOfFile:
    """The dead letters in a journal file, to read."""

    def __init__(self, file: LetterFile, now_ms: int) -> None:
        self._file = file
        self._now_ms = now_ms

    def find(self, wanted: Wanted, *, newest_first: bool = False) -> Iterator[LetterFields]:
        selected, after = wanted.as_filter(self._now_ms), None
        while found := self._file.find(selected, after, _PAGE_LETTERS, newest_first=newest_first):
            yield from (summary_json(letter, self._now_ms) for letter in found)
            after = found[-1].number

    def shown(self, wanted: Wanted) -> Iterator[LetterFields]:
        for letter in self._file.find(wanted.as_filter(self._now_ms)):
            summary = summary_json(letter, self._now_ms)
            try:
                yield {
                    **summary,
                    "content": content_json(letter, message_of(letter, self._file), self._now_ms),
                    "problem": None,
                }
            except UnreadableLetterError as exc:
                yield {**summary, "content": None, "problem": str(exc)}


class LettersOfDaemon:
    """The dead letters of a running daemon. Methods raise `NotAskedError`."""

    def __init__(self, daemon: DaemonAddress) -> None:
        self._daemon = daemon

    def find(self, wanted: Wanted, *, newest_first: bool = False) -> Iterator[LetterFields]:
        query: dict[str, Any] = {**wanted.as_texts(), "limit": _PAGE_LETTERS}
        if newest_first:
            query["order"] = "newest"
        while True:
            found, following = ask(self._daemon, f"/dead-letters?{urlencode(query)}", _page)
            yield from found
            if following is None:
                return
            query["after"] = following

    def shown(self, wanted: Wanted) -> Iterator[LetterFields]:
        for letter in self.find(wanted):
            yield ask(self._daemon, f"/dead-letters/{letter['number']}", _detail, is_secret=True)

    def redrive(self, wanted: Wanted, ttl_ms: int | None) -> RedriveAnswer:
        """Have the matching letters sent again."""
        asked = _selection(wanted) | ({} if ttl_ms is None else {"ttl_ms": ttl_ms})
        return ask(self._daemon, "/dead-letters/redrive", _redriven, asked, _ACT_S)

    def purge(self, wanted: Wanted) -> int:
        """Delete the matching letters. Return how many."""
        return ask(self._daemon, "/dead-letters/purge", lambda answer: int(answer["purged"]), _selection(wanted), _ACT_S)


@contextmanager
def letters_of_daemon(daemon: DaemonAddress) -> Iterator[LettersOfDaemon]:
    """Yield the letters of a daemon. Within the context, reading an invalid answer raises `NotAskedError`."""
    try:
        yield LettersOfDaemon(daemon)
    except UNFIT as exc:
        raise unfit(daemon) from exc


@contextmanager
def letters_of(path: Path, config: Config, now_ms: int) -> Iterator[Letters]:
    """Yield the letters of the daemon that was started from the file at ``path``, which has to name a journal.

    Raises `JournalError` and `CorruptFileError`, and `NotAskedError` if a daemon runs but does not answer.
    """
    assert config.journal is not None
    journal = config.journal.path
    if config.metrics is not None and config.metrics.port and _is_running(journal):
        daemon = configured(path, config)
        try:
            ask(daemon, "", lambda answer: str(answer["name"]))
        except NobodyThereError:
            pass
        else:
            with letters_of_daemon(daemon) as letters:
                yield letters
            return
    with open_letters(journal) as file:
        yield LettersOfFile(file, now_ms)


def _is_running(journal: Path) -> bool:
    try:
        return is_in_use(journal)
    except OSError:  # the lock file belongs to another user: maybe a daemon
        return True


def _selection(wanted: Wanted) -> dict[str, Any]:
    texts = wanted.as_texts()
    return {"filter": texts} if texts else {"all": True}


def _page(answer: Any) -> tuple[list[LetterFields], int | None]:
    return [_checked(each) for each in answer["dead_letters"]], answer["next"]


def _checked(answer: Any) -> LetterFields:
    if not isinstance(answer, dict) or not isinstance(answer["number"], int):
        raise TypeError
    return answer


def _detail(answer: Any) -> LetterFields:
    if not isinstance(answer["content"], dict | None):
        raise TypeError
    return _checked(answer)


def _redriven(answer: Any) -> RedriveAnswer:
    staying = [StayingLetter(str(each["id"]), str(each["source"]), str(each["why"])) for each in answer["not_redriven"]]
    return RedriveAnswer(int(answer["redriven"]), staying, int(answer["not_redriven_total"]))
