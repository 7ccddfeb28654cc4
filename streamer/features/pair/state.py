"""The features' tables in a pair: each transaction of the active streamer is written by the standby, too.

The active one has a `MirroredState`, the standby a `StateReplica`. The law of this file:

- It begins with all rows, as statements that insert them, and what is written here meanwhile, in parts: as many as are
  answered in time (`.sending.Window`). The standby replaces everything that it has by that, in one transaction.
- The statements of each transaction follow in the order of the commits.
- A change is answered once both have it. It is enough to have it here if this one works alone, or if the standby cannot
  write its file, which then has everything told again after a while.
- After a transaction that the standby could not write, it answers none, until everything has been told again.
- Numbers count on from link to link, so an answer that is late is never taken for another one.
- The tables have a lineage: its random name, and those of the files that it has copied. A snapshot with another lineage
  is of a file that is new, or was salvaged or restored: the standby keeps the rows that are not in there, and says so; then
  the active one hands over to it.

Unlike entries, tables that grew apart in a split are not merged: those of the streamer that steps back are replaced.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from streamer.features.host.state import Rows, StateFile, Statement
from streamer.features.pair.sending import Attempts, Window
from streamer.journal.sqlite import FileError

SILENT_S = 5.0
"""How long the standby may take for an answer, before it counts as one that cannot write its file."""

SILENT_AT_FIRST_S = 30.0
"""The same for the copy of everything, which is one transaction."""

_PART_STATEMENTS = 256
_MAX_LATER_BYTES = 64 << 20
_STATE = "tables of the pair"
_KEPT = "subscriptions, pause rules and last values that the active one has lost are kept, and work after a handover"

logger = logging.getLogger("ustreamer.pair")


class Written(NamedTuple):
    """The statements of a transaction. ``is_first`` and ``is_last`` mark the ends of a snapshot.

    ``lineage`` comes with the first one: the names of files whose rows the snapshot has, unless they were deleted since.
    """

    number: int
    statements: Sequence[Statement]
    is_first: bool = False
    is_last: bool = False
    lineage: tuple[str, ...] = ()


class MirroredState:
    """Sends each transaction that changes the tables to the standby. All methods are for the event loop's thread.

    ``tell`` sends something to the other one, and returns whether there is a link. It works alone at first.
    ``is_mirrored``: the other one has had everything, and gets each transaction. ``problem`` is why it cannot have it.
    """

    def __init__(self, tell: Callable[[Written], bool], monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.is_alone = True
        self.is_mirrored = False
        self.problem = ""
        self._tell = tell
        self._file: StateFile | None = None
        self._end = ""  # why nothing can be written any more
        self._told = self._stored = 0
        self._everything = 0  # the number with which the other one has everything
        self._moments = 0  # how often rows were asked for
        self._rows: Rows | None = None  # the rest of everything, while that is being told
        self._later: deque[Statement] = deque()  # what was written meanwhile
        self._later_bytes = 0
        self._waiting: deque[tuple[int, Callable[[str], None]]] = deque()  # each with the number that it waits for, or 0
        self._monotonic_s = monotonic_s
        self._window = Window(monotonic_s)
        self._is_there = False  # the other one, on standby
        self._is_behind = False
        self._has_failed = False
        self._attempts = Attempts()

    @property
    def is_whole(self) -> bool:
        """Return whether the standby has all tables on its disk, apart from transactions on their way."""
        return self.is_mirrored and self._stored >= self._everything

    def work(self, file: StateFile) -> None:
        """Replicate the tables to the next standby that is linked."""
        self._file, self._end = file, ""

    def step_back(self) -> None:
        """Refuse everything that is not stored there: this one works no more, and its file will be replaced."""
        self.other_left()
        self._file, self._end = None, "the other one of the pair works now"
        self._let_go()

    def other_came(self, is_behind: bool = False) -> None:
        """Tell the standby everything. ``is_behind``: it has copied what is lost here, so the lineage proves nothing."""
        self._forget_link()
        self._is_there, self._has_failed, self._is_behind = True, False, is_behind
        if self._file is not None:
            self._moments += 1
            self._file.snapshot(partial(self._begin, self._moments))

    def other_left(self) -> None:
        """Note that the link is gone. Waiting changes go on waiting."""
        self._is_there = False
        self._forget_link()

    def work_alone(self) -> None:
        """Stop waiting for the standby, which is gone."""
        self.other_left()
        self.is_alone = True
        self._let_go()

    def written(self, statements: Sequence[Statement], done: Callable[[str], None]) -> None:
        """Send a transaction that is on disk here to the standby. To be called in the order of the commits.

        ``done`` is called once both have it, or with the reason why it is void.
        """
        if self._rows is not None:
            self._later += statements
            self._later_bytes += sum(map(_size, statements))
            if self._later_bytes > _MAX_LATER_BYTES:  # the disk is faster than the link: begin again
                self.other_came()
        elif self.is_mirrored:
            self._send(Written(self._told + 1, statements))
        self._waiting.append((self._told if self.is_mirrored else 0, done))
        self._let_go()

    def other_stored(self, number: int, problem: str) -> None:
        """Take an answer: the standby has all transactions up to a number on its disk, or cannot write that one."""
        if number <= self._stored:
            return
        if problem:
            self._fail(problem)
            return
        was_whole = self.is_whole
        self._stored = number
        self._window.answered(number)
        if self.is_whole and not was_whole:
            self.is_alone, self.problem = False, ""
            logger.info("pair_state_copied", extra={"state": (_STATE, "copied")})
        self._tell_more()
        self._let_go()

    def tick(self) -> None:
        """Notice that no answer comes, and try again after a failure; to be called every second or more often."""
        now_s = self._monotonic_s()
        self._attempts.look(self.is_whole, now_s)
        if self._has_failed and self._is_there and self._attempts.is_due(now_s):
            self.other_came()
        patience_s = SILENT_S if self.is_whole else SILENT_AT_FIRST_S
        if self._window.silent_s > patience_s:
            self._fail(f"no answer for {patience_s:g} s")

    def _begin(self, moment: int, rows: Rows | FileError) -> None:
        if isinstance(rows, FileError):
            if moment == self._moments:
                self._fail(str(rows))
        elif moment != self._moments or self._file is None:
            rows.close()
        else:
            self._rows = rows
            lineage = () if self._is_behind else tuple(rows.lineage)
            self._send(Written(self._told + 1, (), is_first=True, lineage=lineage))
            self._tell_more()

    def _tell_more(self) -> None:
        while self._rows is not None and self._window.has_room:
            try:
                part = self._rows.take(_PART_STATEMENTS, self._window.part_bytes) or self._take_later()
            except FileError as exc:
                self._fail(str(exc))
                return
            if part:
                self._send(Written(self._told + 1, part))
            elif self._send(Written(self._told + 1, (), is_last=True)):
                self._rows.close()
                self._rows = None
                self._everything, self.is_mirrored = self._told, True
                self._waiting = deque((self._told, done) for _, done in self._waiting)

    def _take_later(self) -> list[Statement]:
        part: list[Statement] = []
        size = 0
        while self._later and len(part) < _PART_STATEMENTS and size < self._window.part_bytes:
            part.append(self._later.popleft())
            size += _size(part[-1])
        self._later_bytes -= size
        return part

    def _send(self, told: Written) -> bool:
        self._told = told.number
        self._window.sent(told.number, sum(_size(statement) + len(statement[0]) for statement in told.statements))
        if self._tell(told):
            return True
        self._forget_link()
        return False

    def _forget_link(self) -> None:
        self._moments += 1
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        self.is_mirrored = False
        self._later.clear()
        self._later_bytes = 0
        self._window.forget()
        self._stored = self._told
        self._waiting = deque((0, done) for _, done in self._waiting)

    def _fail(self, problem: str) -> None:
        """Go on alone, and say so once."""
        if problem != self.problem:
            self.problem = problem
            consequence = "changes of subscriptions, pause rules and last values are on one disk only"
            state = {"state": (_STATE, problem)}
            logger.error("pair_state_not_copied error=%s consequence=%s", problem, consequence, extra=state)
        self._forget_link()
        self._tell(Written(self._told, (), is_first=True))  # it has not everything any more
        self._has_failed = True
        self._attempts.failed(self._monotonic_s())
        self.is_alone = True
        self._let_go()

    def _let_go(self) -> None:
        while self._waiting:
            number, done = self._waiting[0]
            if not (self._end or self.is_alone or 0 < number <= self._stored):
                return
            self._waiting.popleft()
            done(self._end)


class StateReplica:
    """The tables on standby: writes the transactions of the active streamer in order, and confirms them.

    ``answer`` is called with a number, and the problem if that cannot be written. ``is_whole``: it has everything.
    ``has_kept``: it has rows that the active one has lost.
    ``problem`` is why it cannot have that.
    """

    def __init__(self, file: StateFile, answer: Callable[[int, str], object]) -> None:
        self.is_whole = False
        self.has_kept = False
        self.problem = ""
        self._file = file
        self._answer = answer
        self._lineage: tuple[str, ...] = ()
        self._follows = False  # everything before was written
        self._everything: list[Statement] | None = None  # while that is being told
        self._beginnings = 0

    def other_came(self) -> None:
        """Write nothing more before the next snapshot."""
        self.is_whole = self._follows = False
        self._everything = None
        self._beginnings += 1

    def take(self, told: Written) -> None:
        """Write a transaction, or keep a part of everything until it is complete."""
        if told.is_first:
            self.other_came()
            self._follows, self._everything, self._lineage = True, [], told.lineage
        if not self._follows:
            return
        done = partial(self._stored, told, self._beginnings)
        if self._everything is None:
            self._file.store(told.statements, None, done)
            return
        self._everything += told.statements
        if not told.is_last:
            self._answer(told.number, "")
            return
        everything, self._everything = self._everything, None
        self._file.store(everything, self._lineage, done)

    def _stored(self, told: Written, beginning: int, problem: str, has_kept: bool) -> None:
        if beginning != self._beginnings or not self._follows:
            return
        if problem:
            self.is_whole = self._follows = False
            if problem != self.problem:
                consequence = "after a take-over, subscriptions, pause rules and last values are those of before"
                state = {"state": (_STATE, problem)}
                logger.error("pair_state_not_copied error=%s consequence=%s", problem, consequence, extra=state)
        elif told.is_last:
            self.is_whole, self.has_kept = True, has_kept
            logger.info("pair_state_copied", extra={"state": (_STATE, "copied")})
            if has_kept:
                logger.warning("pair_state_kept consequence=%s", _KEPT)
        self.problem = problem
        self._answer(told.number, problem)


def _size(statement: Statement) -> int:
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in statement[1])
