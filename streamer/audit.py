"""The audit log: one line for each administrative act, and for each one that was refused, with who and from where.

The law of this file:
- An act is never left out: the logger has a level of its own, and the limit for repeated lines does not apply to it
  (`streamer.logs`).
- Strangers decide how often something is denied. Of one requester, and of all together, a bounded number of lines appears in
  each window; the rest is counted, and the counts appear when the window is over (`flush`).
- Nothing is logged that proves an identity: no tokens, no passwords, no payloads.
"""

import logging
import time
from collections.abc import Callable, Iterator

NAME = "streamer.audit"

DENIED = "denied"
"""The event of a refusal. Others are acts: paused, resumed, reset, redriven, purged, reloaded."""

WINDOW_S = 10.0
LINES_PER_REQUESTER = 5
LINES = 50
"""The most refusals of one requester, and of all, that have a line of their own in a window."""

COUNTED = 20
"""The most requesters whose other refusals are counted one by one; what others ask is counted together."""

OTHERS = "others"

_MAX_TEXT = 256

_logger = logging.getLogger(NAME)
_logger.setLevel(logging.INFO)


class Denials:
    """Which refusals have a line of their own, and how many of whom had none. Bounded whatever is asked."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until_s = 0.0
        self._lines: dict[str, int] = {}
        self._total = 0
        self._left_out: dict[str, int] = {}

    def has_line(self, who: str) -> bool:
        """Whether a refusal of this requester is logged by itself; if not, it is counted."""
        if self._total < LINES and self._lines.get(who, 0) < LINES_PER_REQUESTER:
            if not self._total:
                self._until_s = self._now_s() + WINDOW_S
            self._lines[who] = self._lines.get(who, 0) + 1
            self._total += 1
            return True
        name = who if who in self._left_out or len(self._left_out) < COUNTED else OTHERS
        self._left_out[name] = self._left_out.get(name, 0) + 1
        return False

    def over(self) -> Iterator[tuple[str, int]]:
        """If the window is over: begin anew, and give who was left out how often in it."""
        if self._total and self._now_s() >= self._until_s:
            left_out, self._left_out = self._left_out, {}
            self._lines.clear()
            self._total = 0
            yield from left_out.items()


_denials = Denials()


def audit(event: str, *, who: str, where: str, **fields: object) -> None:
    """Log an act, or with `DENIED` a refusal.

    ``who``: a uEntity, ``http``, or the user of a command. ``where``: the endpoint or the address from which it came.
    """
    who = _bounded(who)
    if event == DENIED:
        flush()
        if not _denials.has_line(who):
            return
    _log(logging.WARNING if event == DENIED else logging.INFO, event, {"who": who, "where": where, **fields})


def flush() -> None:
    """Log what is to be said of refusals that had no line. To be called now and then: it says it once the window is over."""
    for who, count in _denials.over():
        _log(logging.WARNING, "denied_again", {"who": who, "times": count})


def _log(level: int, event: str, fields: dict[str, object]) -> None:
    template = " ".join((event, *(f"{name}=%s" for name in fields)))
    _logger.log(level, template, *(_bounded(each) if isinstance(each, str) else each for each in fields.values()))


def _bounded(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
