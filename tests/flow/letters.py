"""Dead letters of a journaled run: how messages come to be some, and what is stored. No tests."""

from pathlib import Path

from streamer.journal.letters import LetterFilter, LetterSummary, open_letters
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode


def never(message: UMessage) -> PermanentError:
    return PermanentError(UCode.PERMISSION_DENIED, "no")


def gladly(message: UMessage) -> None:
    return None


def mark(path: Path) -> None:
    """What the command line does."""
    with open_letters(path) as file:
        assert file.mark_for_redrive([letter.number for letter in file.find(LetterFilter())], 1, None) == 1


def stored(path: Path) -> list[LetterSummary]:
    with open_letters(path) as file:
        return file.find(LetterFilter())
