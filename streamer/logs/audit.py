"""The audit log: one line for each administrative act, and for each one that was refused, with who and from where.

The law of this file:
- An act is always logged: the logger has a level of its own, and the limit for repeated lines does not apply to it
  (`streamer.logs.output`).
- Unauthenticated programs can cause any number of refusals. So the lines about refusals are bounded in each window, per
  requester and in total; the rest is counted, and the counts are written when the window is over (`write_denied_again`).
- Nothing is logged that proves an identity: no tokens, no passwords, no payloads.
"""

import logging
import time
from collections.abc import Hashable

from streamer.logs.limit import Limit
from streamer.logs.lines import MAX_VALUE, bounded

NAME = "streamer.audit"

DENIED = "denied"
"""The event of a refusal. Others are acts: paused, resumed, reset, redriven, purged, reloaded."""

WINDOW_S = 10.0
LINES_PER_REQUESTER = 5
LINES = 50
"""The most refusals of one requester, and of all, that have a line of their own in a window."""

COUNTED = 20
"""The most requesters whose further refusals are counted separately; those of others are counted together."""

OTHERS = "others"

_now_s = time.monotonic
_logger = logging.getLogger(NAME)
_logger.setLevel(logging.INFO)


def denials() -> Limit[Hashable, None]:
    """Return the limit that decides which refusals have a line of their own, and counts the others."""
    return Limit(WINDOW_S, LINES, COUNTED)


_denials = denials()


def audit(event: str, *, who: Hashable, where: str, **fields: object) -> None:
    """Log an act, or with `DENIED` a refusal.

    ``who``: a uEntity, ``http``, or the user of a command. ``where``: the endpoint or the address from which it came.
    """
    if event == DENIED:
        write_denied_again()
        now_s = _now_s()
        who = who[:MAX_VALUE] if isinstance(who, str) else who
        if not _denials.has_line(who, now_s, LINES_PER_REQUESTER):
            _denials.leave_out(who, None, now_s)
            return
    _log(logging.WARNING if event == DENIED else logging.INFO, event, {"who": who, "where": where, **fields})


def write_denied_again(is_end: bool = False) -> None:
    """Log how many refusals had no line once the window is over, or at the end. To be called periodically."""
    for who, times, _ in _denials.over(_now_s(), is_end):
        _log(logging.WARNING, "denied_again", {"who": OTHERS if who is None else who, "times": times})


def _log(level: int, event: str, fields: dict[str, object]) -> None:
    template = " ".join((event, *(f"{name}=%s" for name in fields)))
    _logger.log(level, template, *map(bounded, fields.values()))
