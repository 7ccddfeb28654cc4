"""Prints the man page of ``streamer``, made from the parser of its command line: ``python deploy/debian/manpage.py``.

The date is that of SOURCE_DATE_EPOCH, or today. Needs the package ``streamer`` and nothing else.
"""

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from streamer import __version__
from streamer.main import _parser

EXIT_STATUS = {
    0: "Fine.",
    1: "The answer is no, or something failed.",
    2: "Wrong usage.",
    74: "The journal or the traces cannot be read.",
    78: "The configuration cannot be used, or a newer version has written the files.",
}
FILES = {
    "/etc/ustreamer/streamer.yaml": "The configuration of the service.",
    "/var/lib/streamer": "Its journal and state: messages that are not delivered yet, dead letters, subscriptions.",
}


def page(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The lines of the page, in roff with the macros of man(7)."""
    day = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), UTC)
    yield f'.TH STREAMER 1 "{day:%Y-%m-%d}" "ustreamer {__version__}" "User Commands"'
    yield ".SH NAME"
    yield r"streamer \- route uProtocol messages between MQTT 5 and Zenoh"
    yield ".SH SYNOPSIS"
    yield r"\fBstreamer\fR \fICOMMAND\fR [\fIOPTION\fR]..."
    yield ".SH DESCRIPTION"
    yield from _prose(parser.description or "")
    yield from _options(parser)
    yield ".SH COMMANDS"
    yield from _commands(parser)
    yield ".SH EXIT STATUS"
    for status, meaning in EXIT_STATUS.items():
        yield from _item(rf"\fB{status}\fR", meaning)
    yield ".SH FILES"
    for path, meaning in FILES.items():
        yield from _item(rf"\fI{_escaped(path)}\fR", meaning)


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every command that has no commands of its own."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        for command in action.choices.values():
            if any(isinstance(each, argparse._SubParsersAction) for each in command._actions):
                yield from _commands(command)
                continue
            yield f".SS {_escaped(command.prog)}{''.join(f' {_escaped(name)}' for name in _positionals(command))}"
            yield from _prose(command.description or "")
            yield from _options(command)


def _positionals(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._get_positional_actions():
        name = action.metavar or action.dest
        name = name if isinstance(name, str) else " ".join(name)
        yield f"[{name}]" if action.nargs in ("?", "*") else name


def _options(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        value = command._get_formatter()._format_args(action, action.dest.upper())
        names = ", ".join(rf"\fB{_escaped(each)}\fR" for each in action.option_strings)
        term = " ".join(filter(None, (names, rf"\fI{_escaped(value)}\fR" if value else "")))
        text = command._get_formatter()._expand_help(action) if action.help else ""
        yield from _item(term, text[:1].upper() + text[1:] + ("" if text.endswith(".") else "."))


def _item(term: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield term
    yield from _prose(text)


def _prose(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, 76, break_long_words=False, break_on_hyphens=False):
        escaped = _escaped(line)
        yield rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escaped(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-")


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in page(_parser()))
