"""``streamer dead-letters list | show | redrive | purge``: works on the journal's file, with the daemon running or not.

Nothing here prints an access token. The contents of messages are printed without control characters, which a terminal would
obey.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from google.protobuf.message import DecodeError

from streamer.cli.running import user
from streamer.cli.text import EX_CONFIG, EX_IOERR, as_table, complain, lines_out, milliseconds, plain
from streamer.config.checks import nearest
from streamer.config.load import load
from streamer.config.models import Config
from streamer.journal import damage
from streamer.journal.entries import CorruptEntryError, JournalError
from streamer.journal.letters import LetterFile, LetterFilter, LetterSummary, open_letters
from streamer.journal.lock import is_in_use
from streamer.journal.moments import as_moment, as_span
from streamer.journal.sqlite import CorruptFileError
from streamer.logs.audit import audit
from streamer.logs.output import audit_log
from streamer.uprotocol.message import UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UriError, UUri
from streamer.uprotocol.uuid import created_ms, format_id

_PREVIEW_BYTES = 512
_MAX_LINES = 20

Action = Callable[[argparse.Namespace, LetterFile, Config, int], int]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its actions to the command line."""
    text = "List, show, redrive or delete dead letters."
    actions = commands.add_parser("dead-letters", help=text, description=text).add_subparsers(
        required=True, metavar="ACTION"
    )

    def action(name: str, run: Action, text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text)
        sub.set_defaults(command=lambda arguments: _run(arguments, run))
        sub.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration file")
        return sub

    listing = action("list", _list, "List dead letters, oldest first.")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    _add_filters(listing)
    show = action("show", _show, "Print everything about one dead letter.")
    show.add_argument("id", type=_id, metavar="ID", help="the message's id")
    redrive = action("redrive", _redrive, "Send dead letters again. One that still cannot be delivered comes back.")
    redrive.add_argument(
        "--ttl",
        type=_ttl,
        metavar="30s",
        help="their TTL from now on; 0: none. Default: what is left of their own",
    )
    _add_filters(redrive, "all of them; the same as no filter")
    purge = action("purge", _purge, "Delete dead letters for good, without asking. Needs a filter or --all.")
    _add_filters(purge, "all of them")


def _add_filters(parser: argparse.ArgumentParser, all_text: str = "") -> None:
    group = parser.add_argument_group("filters", "Filters can be combined.")
    group.add_argument("--id", type=_id, metavar="ID", help="the message's id")
    group.add_argument("--route", metavar="NAME", help="the route that they were on")
    group.add_argument("--reason", type=_code, metavar="UCODE", help="such as DEADLINE_EXCEEDED")
    group.add_argument("--source", type=_pattern, metavar="PATTERN", help="such as //veh1/FFFFFFFF/FF/FFFF")
    group.add_argument("--sink", type=_pattern, metavar="PATTERN", help="the same; a Publish has no sink")
    group.add_argument(
        "--older-than", type=milliseconds, metavar="2h", help="dead letters for longer than that: 30m, 2h, 7d"
    )
    group.add_argument("--newer-than", type=milliseconds, metavar="2h", help="dead letters for no longer than that")
    if all_text:
        group.add_argument("--all", action="store_true", help=all_text)


# arguments


def _ttl(text: str) -> int:
    if text == "0":
        return 0
    ttl_ms = milliseconds(text)
    if not 1 <= ttl_ms <= 0xFFFF_FFFF:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1ms to 49d, or 0 for no end")
    return ttl_ms


def _code(text: str) -> UCode:
    name = text.upper().replace("-", "_")
    names = [code.name for code in UCode if code]
    if name not in names:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one of {', '.join(names)}{nearest(name, names)}")
    return UCode[name]


def _pattern(text: str) -> UUri:
    try:
        return UUri.parse(text)
    except UriError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def _id(text: str) -> bytes:
    try:
        return UUID(text).bytes
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected the id of a message (a UUID), as `list` prints it") from None


def _filter(arguments: argparse.Namespace, now_ms: int) -> LetterFilter:
    return LetterFilter(
        id=arguments.id,
        route=arguments.route,
        code=arguments.reason,
        source=arguments.source,
        sink=arguments.sink,
        until_ms=None if arguments.older_than is None else now_ms - arguments.older_than,
        since_ms=None if arguments.newer_than is None else now_ms - arguments.newer_than,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# actions


def _run(arguments: argparse.Namespace, action: Action) -> int:
    config = load(arguments.config)
    if config.journal is None:
        return complain(f"{arguments.config}: journal: null: dead letters are kept in the journal only", EX_CONFIG)
    try:
        if action in (_redrive, _purge):
            audit_log(config.log.audit)  # what cannot be recorded is not done
    except OSError as exc:
        return complain(f"{arguments.config}: log.audit: {exc}", EX_IOERR)
    try:
        with open_letters(config.journal.path) as file:
            return action(arguments, file, config, _now_ms())
    except JournalError as exc:
        return complain(str(exc), EX_CONFIG if exc.is_newer else EX_IOERR)
    except CorruptFileError as exc:
        return complain(damage.text_of(config.journal.path, exc), EX_IOERR)


def _list(arguments: argparse.Namespace, file: LetterFile, config: Config, now_ms: int) -> int:
    found = file.find(_filter(arguments, now_ms))
    if arguments.json:
        lines_out(json.dumps(_as_json(letter, now_ms)) for letter in found)  # in ASCII: nothing that a terminal would obey
        return 0 if found else 1
    if not found:
        return _nothing()
    head = ("WHEN", "REASON", "ROUTE", "TYPE", "SOURCE", "SINK", "ID", "AGE", "SIZE")
    lines_out(as_table([head, *(_as_line(letter, now_ms) for letter in found)]))
    total = f"{_count(len(found))}, {sum(letter.size for letter in found)} bytes"
    waiting = sum(letter.redrive_ms is not None for letter in found)
    lines_out([total + (f"; {waiting} to be redriven" if waiting else "")])
    return 0


def _show(arguments: argparse.Namespace, file: LetterFile, config: Config, now_ms: int) -> int:
    found = file.find(LetterFilter(id=arguments.id))
    for index, letter in enumerate(found):
        lines_out([""] if index else [])
        lines_out(as_table(list(_facts(letter, now_ms))))
        try:
            message = message_from_proto(pb.UMessage.FromString(file.body(letter.number)))
        except (CorruptEntryError, DecodeError, ValueError) as exc:
            lines_out([f"the message cannot be shown: {plain(str(exc))}"])
        else:
            lines_out(as_table(list(_content(message, now_ms))))
            lines_out(_preview(message.payload or b""))
    return 0 if found else _nothing()


def _purge(arguments: argparse.Namespace, file: LetterFile, config: Config, now_ms: int) -> int:
    chosen = _filter(arguments, now_ms)
    if not arguments.all and chosen == LetterFilter():
        return complain("purge: expected a filter, or --all for all of them", 2)
    deleted = file.delete([letter.number for letter in file.find(chosen)])
    if not deleted:
        return _nothing()
    audit("purged", who=user(), where="command line", letters=deleted)
    lines_out([f"{_count(deleted)} deleted"])
    return 0


def _redrive(arguments: argparse.Namespace, file: LetterFile, config: Config, now_ms: int) -> int:
    assert config.journal is not None
    found = file.find(_filter(arguments, now_ms))
    if not found:
        return _nothing()
    going: list[int] = []
    staying: list[str] = []
    for letter in found:
        why_not = _obstacle(letter, file, arguments.ttl, now_ms)
        if why_not:
            staying.append(f"not redriven: {format_id(letter.id)} {plain(letter.source)}: {plain(why_not)}")
        else:
            going.append(letter.number)
    lines_out(staying[:_MAX_LINES])
    if len(staying) > _MAX_LINES:
        lines_out([f"not redriven: {len(staying) - _MAX_LINES} more like these"])
    marked = file.mark_for_redrive(going, now_ms, arguments.ttl)
    if not marked:
        return complain("nothing to redrive", 1)
    audit("redriven", who=user(), where="command line", letters=marked)
    when = "now, by the running daemon" if is_in_use(config.journal.path) else "when the daemon starts; it is not running"
    lines_out([f"{_count(marked)} to be redriven {when}"])
    return 0


def _obstacle(letter: LetterSummary, file: LetterFile, ttl_ms: int | None, now_ms: int) -> str:
    """Why a letter cannot be redriven; empty if it can."""
    if ttl_ms == 0 and letter.type == UMessageType.REQUEST:
        return "a Request needs a --ttl above 0"
    try:
        message = message_from_proto(pb.UMessage.FromString(file.body(letter.number)))
    except (CorruptEntryError, DecodeError, ValueError) as exc:
        return str(exc)
    if ttl_ms is None and message.is_expired(now_ms):
        return f"expired {as_span(now_ms - (message.deadline_ms or 0))} ago, use --ttl"
    return ""


# output


def _as_line(letter: LetterSummary, now_ms: int) -> tuple[str, ...]:
    return (
        as_moment(letter.last_ms),
        _code_name(letter.code),
        plain(letter.route) or "-",
        _type_name(letter.type),
        plain(letter.source),
        plain(letter.sink) or "-",
        format_id(letter.id),
        as_span(now_ms - letter.last_ms),
        str(letter.size),
    )


def _as_json(letter: LetterSummary, now_ms: int) -> dict[str, object]:
    return {
        "id": format_id(letter.id),
        "when": as_moment(letter.last_ms),
        "age_s": (now_ms - letter.last_ms) / 1000,
        "reason": _code_name(letter.code),
        "text": letter.text,
        "outcome": letter.outcome,
        "route": letter.route,
        "ingress": letter.ingress,
        "egress": letter.target,
        "attempts": letter.attempts,
        "first": as_moment(letter.first_ms),
        "type": _type_name(letter.type).lower(),
        "source": letter.source,
        "sink": letter.sink or None,
        "size": letter.size,
        "redrive": None if letter.redrive_ms is None else as_moment(letter.redrive_ms),
    }


def _facts(letter: LetterSummary, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "id", format_id(letter.id)
    yield "type", _type_name(letter.type)
    yield "source", plain(letter.source)
    yield "sink", plain(letter.sink) or "-"
    yield "reason", f"{_code_name(letter.code)}: {plain(letter.text)}"
    yield "outcome", plain(letter.outcome)
    yield "route", plain(letter.route) or "-"
    yield "endpoints", f"from {plain(letter.ingress) or '-'} to {plain(letter.target) or '-'}"
    yield "attempts", str(letter.attempts)
    yield "accepted", as_moment(letter.first_ms)
    yield "given up", f"{as_moment(letter.last_ms)} ({as_span(now_ms - letter.last_ms)} ago)"
    if letter.redrive_ms is not None:
        ttl_ms = letter.redrive_ttl_ms
        ttl = "" if ttl_ms is None else f", TTL {as_span(ttl_ms)}" if ttl_ms else ", without end"
        yield "redrive", f"asked for at {as_moment(letter.redrive_ms)}{ttl}"


def _content(message: UMessage, now_ms: int) -> Iterator[tuple[str, str]]:
    a = message.attributes
    yield "created", as_moment(created_ms(message.id))
    if message.deadline_ms is None:
        yield "ttl", "none"
    else:
        left_ms = message.deadline_ms - now_ms
        state = f"{as_span(left_ms)} left" if left_ms >= 0 else f"expired {as_span(-left_ms)} ago"
        yield "ttl", f"{a.ttl} ms, {state}"
    yield "priority", a.priority.name if a.priority else f"{UPriority.CS1.name} (unspecified)"
    if a.permission_level is not None:
        yield "permission level", str(a.permission_level)
    if a.commstatus is not None:
        yield "commstatus", a.commstatus.name
    if a.reqid is not None:
        yield "reqid", format_id(a.reqid)
    yield "traceparent", plain(a.traceparent or "") or "-"
    yield "token", "-" if a.token is None else "present, not shown"
    yield "payload format", UPayloadFormat(a.payload_format).name
    yield "payload", "none" if message.payload is None else f"{len(message.payload)} bytes"


def _preview(payload: bytes) -> Iterator[str]:
    """The beginning of a payload: as text if it is text, otherwise in hex."""
    head = payload[:_PREVIEW_BYTES]
    text = head.decode(errors="ignore")
    if len(text.encode()) > len(head) - 4 and all(char.isprintable() or char in "\r\n\t" for char in text):
        yield from (f"  {plain(line)}" for line in text.splitlines())
    else:
        for at in range(0, len(head), 16):
            piece = head[at : at + 16]
            shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
            yield f"  {at:04x}  {piece.hex(' '):<47}  {shown}"
    if len(payload) > len(head):
        yield f"  … {len(payload) - len(head)} bytes more"


def _code_name(code: int) -> str:
    return UCode(code).name if code in UCode._value2member_map_ else str(code)


def _type_name(kind: int) -> str:
    return UMessageType(kind).name.capitalize() if kind in UMessageType._value2member_map_ else str(kind)


def _count(number: int) -> str:
    return f"{number} dead letter" if number == 1 else f"{number} dead letters"


def _nothing() -> int:
    return complain("no such dead letter", 1)
