"""``streamer audit``: prints what the live audit of a running daemon has found."""

import argparse
from typing import Any

from streamer.tools.running import add_options, answered, ask, daemon_of, loaded
from streamer.tools.text import add_json, as_table, complain, document_out, lines_out


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Print which messages were lost between streamers, as the running daemon has found. Status 1: some were."
    audit = commands.add_parser("audit", help=text, description=text)
    audit.set_defaults(command=answered(_audit))
    add_options(audit)
    add_json(audit)


def _audit(arguments: argparse.Namespace) -> int:
    daemon = daemon_of(arguments, loaded(arguments))
    found: dict[str, Any] = ask(daemon, "/live-audit", lambda answer: {**answer, "findings": list(answer["findings"])})
    if not found["compares"]:
        return complain("the streamer compares nothing: set live_audit in its configuration, without to", 1)
    if arguments.as_json:
        document_out(found)
    else:
        numbers = ", ".join(f"{number} {verdict}" for verdict, number in found["messages"].items())
        lines_out([f"messages: {numbers}; open: {found['open_minutes']} minutes; streamers: {found['streamers']}"])
        names = ("minute", "verdict", "messages", "streamer", "class", "id")
        rows = [tuple(str(each[name]) for name in names) for each in found["findings"]]
        lines_out(as_table([tuple(map(str.upper, names)), *rows]) if rows else ["nothing lost, and nothing twice"])
    return 1 if found["messages"]["lost"] else 0
