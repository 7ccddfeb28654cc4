"""``streamer handover``: has the active streamer of a pair hand over to its standby, over the HTTP port."""

import argparse
import time
from typing import Any, NamedTuple

from streamer.journal.moments import as_span
from streamer.tools.running import (
    DaemonAddress,
    DaemonRefusedError,
    NotAskedError,
    add_options,
    answered,
    ask,
    daemon_of,
    loaded,
)
from streamer.tools.text import add_json, complain, document_out, lines_out, milliseconds

_WITHIN_MS = 600_000  # it drains, starts anew, and gets a copy of the other one's journal
_ASKS_EVERY_S = 0.5


class _Pair(NamedTuple):
    """The pair as one of its streamers reports it."""

    is_active: bool
    since: str
    why: str
    epoch: int
    problem: str


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Have the active streamer of a pair hand over to the other one, which goes on at once; refused if it cannot."
    handover = commands.add_parser("handover", help=text, description=text)
    handover.set_defaults(command=answered(_handover))
    add_options(handover)
    text = "return once it is on standby and could take over again, or fail after this time; default: 10m"
    handover.add_argument("--wait", nargs="?", type=milliseconds, const=_WITHIN_MS, metavar="DURATION", help=text)
    text = "also if the other one has no link to nodes that this one is connected to, and would lose what they send"
    handover.add_argument("--anyway", action="store_true", help=text)
    add_json(handover)


def _handover(arguments: argparse.Namespace) -> int:
    daemon = daemon_of(arguments, loaded(arguments))
    before = ask(daemon, "/pair/handover", _read, {"anyway": True} if arguments.anyway else {})
    after, problem = (None, "") if arguments.wait is None else _waited(daemon, before, arguments.wait)
    if problem:
        return complain(problem, 1)
    epoch = before.epoch if after is None else after.epoch
    if arguments.as_json:
        document_out({"epoch": epoch, "ready": after is not None})
    elif after is None:
        lines_out(["hands over: it drains, then the other one is active, and this one starts anew on standby"])
    else:
        lines_out([f"handed over: the other one is active (epoch {epoch}), this one is on standby and could take over"])
    return 0


def _waited(daemon: DaemonAddress, before: _Pair, within_ms: int) -> tuple[_Pair | None, str]:
    """Wait until the streamer that was active before could take over again. Return what it says then; or the problem."""
    until_s, problem, is_ready = time.monotonic() + within_ms / 1000, "it still drains", False
    while time.monotonic() < until_s:
        time.sleep(_ASKS_EVERY_S)
        try:
            pair = ask(daemon, "/pair", _read)
        except DaemonRefusedError:
            raise
        except NotAskedError as exc:  # it starts anew
            problem, is_ready = str(exc), False
            continue
        was_ready, is_ready = is_ready, not pair.is_active and not pair.problem
        if is_ready and was_ready:  # the other one needs a moment to know
            return pair, ""
        if pair.is_active and (pair.since, pair.epoch) != (before.since, before.epoch):
            return None, f"it is active again since {pair.since}: {pair.why}"
        problem = pair.problem or "it still drains"
    return None, f"it could not take over again within {as_span(within_ms)}: {problem}"


def _read(answer: Any) -> _Pair:
    """Read the page of a pair. Raises the errors in `UNFIT`."""
    return _Pair(
        {"active": True, "standby": False}[answer["role"]],
        str(answer["since"]),
        str(answer["why"]),
        int(answer["epoch"]),
        str(answer["problem"]),
    )
