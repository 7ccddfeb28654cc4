"""``streamer last``: prints the last message of topics that a running daemon knows (`utwin`)."""

import argparse
from typing import Any
from urllib.parse import urlencode

from streamer.journal.moments import as_span
from streamer.tools.running import add_options, answered, ask, daemon_of, loaded
from streamer.tools.text import add_json, as_table, complain, document_out, lines_out, payload_text
from streamer.uprotocol.uri import UriError, UUri

_FORMS = ("none", "length", "hex", "json", "text")
_OFF = "the streamer keeps no last values: set utwin in its configuration, such as utwin: {}"


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Print the last message of each topic that the running daemon has forwarded, with its age."
    last = commands.add_parser("last", help=text, description=text)
    last.set_defaults(command=answered(_last))
    add_options(last)
    add_json(last)
    last.add_argument("topic", nargs="?", metavar="TOPIC", help="a topic or a pattern; default: all topics")
    last.add_argument("--payload", choices=_FORMS, default="text", help="how to print the payload; default: text")


def _last(arguments: argparse.Namespace) -> int:
    asked = {"payload": arguments.payload, "limit": "1000"}
    if arguments.topic is not None:
        try:
            asked["topic"] = str(UUri.parse(arguments.topic))
        except UriError as exc:
            return complain(f"TOPIC: {exc}", 2)
    daemon = daemon_of(arguments, loaded(arguments))
    values: list[dict[str, Any]] = []
    while True:
        found, after, is_on = ask(
            daemon,
            f"/last-values?{urlencode(asked)}",
            lambda answer: (list(map(dict, answer["values"])), answer["next"], bool(answer["is_on"])),
            is_secret=True,
        )
        if not is_on:
            return complain(_OFF, 1)
        values += found
        if after is None:
            break
        asked["after"] = after
    if arguments.as_json:
        document_out({"values": values})
    else:
        lines_out(as_table([("TOPIC", "AGE", "SIZE", "PAYLOAD"), *map(_row, values)]) if values else ["no message yet"])
    return 0 if values else 1


def _row(value: dict[str, Any]) -> tuple[str, str, str, str]:
    size = f"{value['bytes']} B" if "bytes" in value else ""
    shown = payload_text(value["payload"]) if isinstance(value.get("payload"), dict) else ""
    cut = f" (and {value['cut_bytes']} B more)" if value.get("cut_bytes") else ""
    return str(value["topic"]), as_span(round(float(value["age_s"]) * 1000)), size, f"{shown}{cut}"
