"""``streamer dead-letters list | show | redrive | purge``: asks the running daemon; `list` and `show` do without one.

Nothing here prints an access token.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from uuid import UUID

from streamer.config.checks import nearest
from streamer.journal import damage
from streamer.journal.entries import JournalError
from streamer.journal.letter_acts import MAX_TTL_MS
from streamer.journal.moments import as_span
from streamer.journal.sqlite import CorruptFileError
from streamer.tools.letters import LetterFields, Letters, LettersOfDaemon, Wanted, letters_of, letters_of_daemon
from streamer.tools.running import NobodyThereError, NotAskedError, add_options, answered, daemon_of, loaded
from streamer.tools.text import EX_CONFIG, EX_IOERR, add_json, as_table, complain, document_out, lines_out, milliseconds, uri
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uuid import DAY_MS

_PREVIEW_BYTES = 512


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its actions to the command line."""
    text = "List, show, redrive or delete dead letters."
    actions = commands.add_parser("dead-letters", help=text, description=text).add_subparsers(
        required=True, metavar="ACTION"
    )

    def action(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text)
        sub.set_defaults(command=answered(run))
        add_options(sub)
        return sub

    listing = action("list", partial(_read, _list), "List dead letters, oldest first.")
    listing.add_argument("--newest", action="store_true", help="newest first")
    listing.add_argument("--json", action="store_true", help="one JSON object per line")
    _add_filters(listing)
    show = action("show", partial(_read, _show), "Print everything about one dead letter.")
    show.add_argument("id", type=_id, metavar="ID", help="the message's id")
    add_json(show)
    redrive = action(
        "redrive",
        partial(_change, _redrive),
        "Have the running daemon send dead letters again. Those that still fail remain dead letters.",
    )
    redrive.add_argument(
        "--ttl", type=_ttl, metavar="30s", help="a new TTL, from now on; 0: no TTL. Default: the rest of their own TTL"
    )
    purge = action(
        "purge", partial(_change, _purge), "Have the running daemon delete dead letters for good. Needs a filter or --all."
    )
    for sub in (redrive, purge):
        _add_filters(sub, "all of them; asks on a terminal")
        sub.add_argument("--yes", action="store_true", help="all of them without asking, on a terminal")
        add_json(sub)


def _add_filters(parser: argparse.ArgumentParser, all_text: str = "") -> None:
    group = parser.add_argument_group("filters", "Filters can be combined.")
    group.add_argument("--id", type=_id, metavar="ID", help="the message's id")
    group.add_argument("--route", metavar="NAME", help="the route of the messages")
    group.add_argument("--reason", type=_code, metavar="UCODE", help="the code of the failure, such as DEADLINE_EXCEEDED")
    group.add_argument("--source", type=uri, metavar="PATTERN", help="the source, such as //veh1/FFFFFFFF/FF/FFFF")
    group.add_argument("--sink", type=uri, metavar="PATTERN", help="the sink; a Publish has none")
    group.add_argument(
        "--older-than", type=milliseconds, metavar="2h", help="messages that failed longer ago than that: 30m, 2h, 7d"
    )
    group.add_argument("--newer-than", type=milliseconds, metavar="2h", help="messages that failed since then")
    if all_text:
        group.add_argument("--all", action="store_true", help=all_text)


# arguments


def _ttl(text: str) -> int:
    if text == "0":
        return 0
    ttl_ms = milliseconds(text)
    if not 1 <= ttl_ms <= MAX_TTL_MS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1ms to 49d, or 0 for no TTL")
    return ttl_ms


def _code(text: str) -> UCode:
    name = text.upper().replace("-", "_")
    names = [code.name for code in UCode if code]
    if name not in names:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one of {', '.join(names)}{nearest(name, names)}")
    return UCode[name]


def _id(text: str) -> bytes:
    try:
        return UUID(text).bytes
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected the id of a message (a UUID), as `list` prints it") from None


def _wanted(arguments: argparse.Namespace) -> Wanted:
    return Wanted(
        id=arguments.id,
        route=arguments.route,
        reason=arguments.reason,
        source=arguments.source,
        sink=arguments.sink,
        older_than_ms=arguments.older_than,
        newer_than_ms=arguments.newer_than,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# actions


def _change(action: Callable[[argparse.Namespace, LettersOfDaemon], int], arguments: argparse.Namespace) -> int:
    try:
        with letters_of_daemon(daemon_of(arguments, loaded(arguments))) as letters:
            return action(arguments, letters)
    except NobodyThereError as exc:
        raise NotAskedError(f"{exc}; only a running daemon changes dead letters") from exc


def _read(action: Callable[[argparse.Namespace, Letters], int], arguments: argparse.Namespace) -> int:
    config = loaded(arguments)
    if config is None or arguments.url is not None:
        with letters_of_daemon(daemon_of(arguments, config)) as letters:
            return action(arguments, letters)
    if config.journal is None:
        return complain(f"{arguments.config}: journal: null: dead letters are kept in the journal only", EX_CONFIG)
    try:
        with letters_of(arguments.config, config, _now_ms()) as letters:
            return action(arguments, letters)
    except JournalError as exc:
        return complain(str(exc), EX_CONFIG if exc.is_newer else EX_IOERR)
    except CorruptFileError as exc:
        return complain(damage.text_of(config.journal.path, exc), EX_IOERR)


def _list(arguments: argparse.Namespace, letters: Letters) -> int:
    found = list(letters.find(_wanted(arguments), newest_first=arguments.newest))
    if arguments.json:
        lines_out(json.dumps(letter) for letter in found)  # ASCII: no control characters
        return 0 if found else 1
    if not found:
        return _nothing()
    head = ("WHEN", "REASON", "ROUTE", "TYPE", "SOURCE", "SINK", "ID", "AGE", "SIZE")
    lines_out(as_table([head, *map(_as_line, found)]))
    total = f"{_count(len(found))}, {sum(letter['size'] for letter in found)} bytes"
    waiting = sum(letter["redrive"] is not None for letter in found)
    lines_out([total + (f"; {waiting} to be redriven" if waiting else "")])
    return 0


def _show(arguments: argparse.Namespace, letters: Letters) -> int:
    if arguments.as_json:
        found = list(letters.shown(Wanted(id=arguments.id)))
        document_out({"dead_letters": found})
        return 0 if found else 1
    index = -1
    for index, letter in enumerate(letters.shown(Wanted(id=arguments.id))):
        lines_out([""] if index else [])
        lines_out(as_table(list(_summary_rows(letter))))
        if letter["content"] is None:
            lines_out([f"the message cannot be shown: {letter['problem']}"])
        else:
            lines_out(as_table(list(_content_rows(letter["content"], _now_ms()))))
            lines_out(_preview(letter["content"]["payload"]))
    return _nothing() if index < 0 else 0


def _purge(arguments: argparse.Namespace, letters: LettersOfDaemon) -> int:
    wanted = _wanted(arguments)
    if not arguments.all and wanted == Wanted():
        return complain("purge: expected a filter, or --all for all of them", 2)
    if not _is_agreed(arguments, letters, "delete"):
        return complain("nothing deleted", 1)
    deleted = letters.purge(wanted)
    if arguments.as_json:
        document_out({"purged": deleted})
        return 0 if deleted else 1
    if not deleted:
        return _nothing()
    lines_out([f"{_count(deleted)} deleted"])
    return 0


def _redrive(arguments: argparse.Namespace, letters: LettersOfDaemon) -> int:
    wanted = _wanted(arguments)
    if wanted == Wanted() and not (arguments.all or arguments.yes or sys.stdin.isatty()):
        return complain("redrive: expected a filter, or --all for all of them", 2)
    if not _is_agreed(arguments, letters, "redrive"):
        return complain("nothing redriven", 1)
    done = letters.redrive(wanted, arguments.ttl)
    if arguments.as_json:
        staying = [each._asdict() for each in done.staying]
        document_out({"redriven": done.going, "not_redriven": staying, "not_redriven_total": done.staying_total})
        return 0 if done.going else 1
    if not done.going and not done.staying_total:
        return _nothing()
    lines_out(f"not redriven: {each.id} {each.source}: {each.why}" for each in done.staying)
    if done.staying_total > len(done.staying):
        lines_out([f"not redriven: {done.staying_total - len(done.staying)} more like these"])
    if not done.going:
        return complain("nothing to redrive", 1)
    lines_out([f"{_count(done.going)} to be redriven now, by the running daemon"])
    return 0


def _is_agreed(arguments: argparse.Namespace, letters: Letters, act: str) -> bool:
    """Ask whether to act on all letters, if that is what the command means and somebody at a terminal can answer."""
    if arguments.yes or _wanted(arguments) != Wanted() or not sys.stdin.isatty():
        return True
    number = sum(1 for _ in letters.find(Wanted()))
    if not number:
        return True  # the act says that there are none
    sys.stderr.write(f"{act} all {number} dead letters? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# output


def _as_line(letter: LetterFields) -> tuple[str, ...]:
    return (
        letter["when"],
        letter["reason"],
        letter["route"] or "-",
        letter["type"].capitalize(),
        letter["source"],
        letter["sink"] or "-",
        letter["id"],
        _age(letter) or "unknown",
        str(letter["size"]),
    )


def _age(letter: LetterFields) -> str:
    """Return how long ago a letter failed; empty if nobody knows (`LetterFilter.ahead_ms`)."""
    age_ms = round(letter["age_s"] * 1000)
    return "" if age_ms < -DAY_MS else as_span(age_ms)


def _summary_rows(letter: LetterFields) -> Iterator[tuple[str, str]]:
    yield "id", letter["id"]
    yield "type", letter["type"].capitalize()
    yield "source", letter["source"]
    yield "sink", letter["sink"] or "-"
    yield "reason", f"{letter['reason']}: {letter['text']}"
    yield "outcome", letter["outcome"]
    yield "route", letter["route"] or "-"
    yield "endpoints", f"from {letter['ingress'] or '-'} to {letter['egress'] or '-'}"
    yield "attempts", str(letter["attempts"])
    yield "accepted", letter["first"]
    yield (
        "given up",
        f"{letter['when']} ({f'{age} ago' if (age := _age(letter)) else 'by a clock that was wrong then, or is now'})",
    )
    if letter["redrive"] is not None:
        ttl_ms = letter["redrive_ttl_ms"]
        ttl = "" if ttl_ms is None else f", TTL {as_span(ttl_ms)}" if ttl_ms else ", without end"
        yield "redrive", f"requested at {letter['redrive']}{ttl}"


def _content_rows(fields: LetterFields, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "created", fields["created"]
    yield "ttl", _ttl_left(fields, now_ms)
    yield "priority", fields["priority"]
    for name, label in (("permission_level", "permission level"), ("commstatus", "commstatus"), ("reqid", "reqid")):
        if fields[name] is not None:
            yield label, str(fields[name])
    yield "traceparent", fields["traceparent"] or "-"
    yield "token", fields["token"] or "-"
    yield "payload format", fields["payload_format"]
    yield "payload", "none" if fields["payload_bytes"] is None else f"{fields['payload_bytes']} bytes"


def _ttl_left(fields: LetterFields, now_ms: int) -> str:
    if fields["deadline"] is None:
        return "none"
    try:
        left_ms = round(datetime.fromisoformat(fields["deadline"]).timestamp() * 1000) - now_ms
    except ValueError:  # an id may contain anything
        return f"{fields['ttl_ms']} ms"
    state = f"{as_span(left_ms)} left" if left_ms >= 0 else f"expired {as_span(-left_ms)} ago"
    return f"{fields['ttl_ms']} ms, {state}"


def _preview(payload: LetterFields | None) -> Iterator[str]:
    """Yield lines with the beginning of a payload: as text if it is text, otherwise in hexadecimal."""
    if payload is None:
        return
    left_out_bytes = payload["left_out_bytes"]
    if "text" in payload:
        head = payload["text"].encode(errors="replace")
        text = head[:_PREVIEW_BYTES].decode(errors="ignore")
        left_out_bytes += len(head) - len(text.encode())
        yield from (f"  {line}" for line in text.splitlines())
    else:
        data = bytes.fromhex(payload["hex"])
        left_out_bytes += max(0, len(data) - _PREVIEW_BYTES)
        for at in range(0, min(len(data), _PREVIEW_BYTES), 16):
            piece = data[at : min(at + 16, _PREVIEW_BYTES)]
            shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
            yield f"  {at:04x}  {piece.hex(' '):<47}  {shown}"
    if left_out_bytes:
        yield f"  … {left_out_bytes} bytes more"


def _count(number: int) -> str:
    return f"{number} dead letter" if number == 1 else f"{number} dead letters"


def _nothing() -> int:
    return complain("found no dead letter", 1)
