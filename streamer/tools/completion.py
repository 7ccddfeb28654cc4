"""``streamer completion``: a script with which a shell completes commands, options and files."""

import argparse
import sys
from collections.abc import Iterator

from streamer.tools.text import complain

SHELLS = ("bash", "zsh", "fish")
_FILES = {"FILE": "FILE", "DIR": "DIRECTORY"}
"""The metavar of an option → the kind of completion."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", parser: argparse.ArgumentParser) -> None:
    """Add the command to the command line of ``parser``."""
    text = "Print a script that makes a shell complete commands and options."
    completion = commands.add_parser("completion", help=text, description=text)
    completion.set_defaults(command=_completion, whole=parser)
    completion.add_argument("shell", choices=SHELLS, help="which shell")


def _completion(arguments: argparse.Namespace) -> int:
    try:
        import shtab  # noqa: PLC0415  # installed with an extra
    except ModuleNotFoundError:
        return complain("completion needs shtab; install with: pip install 'uprotocol-ustreamer[completion]'", 1)
    for action in _actions(arguments.whole):
        if isinstance(action.metavar, str) and action.metavar in _FILES:
            action.complete = getattr(shtab, _FILES[action.metavar])  # type: ignore[attr-defined]  # where shtab looks
    script = shtab.complete(arguments.whole, shell=arguments.shell)
    sys.stdout.writelines(f"{line}\n" for line in script.splitlines())  # a shell may need its tabs
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of all commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
