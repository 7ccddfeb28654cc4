"""Redrives and deletes dead letters in small portions, so that the daemon's own transactions do not wait for long."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import DecodeError

from streamer.journal.entries import CorruptEntryError
from streamer.journal.letters import LetterChange, LetterFile, LetterFilter, LetterSummary
from streamer.journal.moments import as_span
from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto

MAX_TTL_MS = 0xFFFF_FFFF
"""The longest TTL that a message can have."""

MAX_NAMED = 20
"""The most letters that stay and are reported with a reason."""

_PAGE_LETTERS = 500

ChangeLetters = Callable[[LetterChange], int]
"""Changes letters, as `Journal.change_letters` does. Returns how many of them still existed. Raises `JournalError`."""


class UnreadableLetterError(ValueError):
    """The message of a letter cannot be read; the text gives the reason."""


class Staying(NamedTuple):
    """A letter that cannot be redriven."""

    letter: LetterSummary
    why: str


@dataclass(slots=True)
class Redriven:
    """The numbers of letters that are redriven and that stay, with the reasons of the first `MAX_NAMED`."""

    going: int = 0
    staying: int = 0
    named: list[Staying] = field(default_factory=list)


def redrive(
    file: LetterFile,
    change: ChangeLetters,
    selected: LetterFilter,
    now_ms: int,
    ttl_ms: int | None,
    go_on: Callable[[], bool],
) -> Redriven:
    """Mark letters for a redrive, with a new TTL in ms (0: none; None: their own), while ``go_on`` returns True."""
    done = Redriven()
    for letters in _pages(file, selected, go_on):
        going: list[int] = []
        for letter in letters:
            why = _obstacle(letter, file, ttl_ms, now_ms)
            if not why:
                going.append(letter.number)
                continue
            done.staying += 1
            if len(done.named) < MAX_NAMED:
                done.named.append(Staying(letter, why))
        done.going += change(LetterChange(going, now_ms, ttl_ms))
    return done


def purge(file: LetterFile, change: ChangeLetters, selected: LetterFilter, go_on: Callable[[], bool]) -> int:
    """Delete letters for good while ``go_on`` returns True. Return how many."""
    pages = _pages(file, selected, go_on)
    return sum(change(LetterChange([letter.number for letter in letters])) for letters in pages)


def message_of(letter: LetterSummary, file: LetterFile) -> UMessage:
    """Return the message of a letter. Raises `UnreadableLetterError`."""
    try:
        return message_from_proto(pb.UMessage.FromString(file.body(letter.number)))
    except (CorruptEntryError, DecodeError, ValueError) as exc:
        raise UnreadableLetterError(str(exc)) from exc


def _pages(file: LetterFile, selected: LetterFilter, go_on: Callable[[], bool]) -> Iterator[list[LetterSummary]]:
    after: int | None = None
    while go_on() and (letters := file.find(selected, after, _PAGE_LETTERS)):
        yield letters
        after = letters[-1].number


def _obstacle(letter: LetterSummary, file: LetterFile, ttl_ms: int | None, now_ms: int) -> str:
    """Return why a letter cannot be redriven; empty if it can."""
    if ttl_ms == 0 and letter.type == UMessageType.REQUEST:
        return "a Request needs a TTL above 0"
    try:
        message = message_of(letter, file)
    except UnreadableLetterError as exc:
        return str(exc)
    expired_ms = message.expires_ms(now_ms, (now_ms - letter.first_ms) / 1000)
    if ttl_ms is None and expired_ms is not None and expired_ms < now_ms:
        return f"expired {as_span(now_ms - expired_ms)} ago, needs another TTL"
    return ""
