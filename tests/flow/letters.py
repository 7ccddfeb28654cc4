"""Dead letters of a journaled run: how messages come to be some, and what is stored. No tests."""

from pathlib import Path

from streamer.journal.letters import LetterChange, LetterFilter, LetterSummary, open_letters
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from tests.flow.journaled_run import JournaledRun


def never(message: UMessage) -> PermanentError:
    return PermanentError(UCode.PERMISSION_DENIED, "no")


def gladly(message: UMessage) -> None:
    return None


def mark(run: JournaledRun) -> None:
    """What the administration API does."""
    assert run.journal.change_letters(LetterChange([letter.number for letter in stored(run.journal.path)], 1)) == 1


def stored(path: Path) -> list[LetterSummary]:
    with open_letters(path) as file:
        return file.find(LetterFilter())
