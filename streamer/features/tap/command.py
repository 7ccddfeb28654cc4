"""``streamer tap``: prints messages of a running daemon with their outcomes, live, until Ctrl-C."""

import argparse

from streamer.tools.running import add_options, answered
from streamer.tools.tap import watch
from streamer.tools.text import number


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Print messages of the running daemon live, with their outcomes, until Ctrl-C, and how many are left out."
    tap = commands.add_parser("tap", help=text, description=text)
    tap.set_defaults(command=answered(watch))
    add_options(tap)
    tap.add_argument("--route", metavar="NAME", help="only those on this route; none: those that no route takes")
    tap.add_argument("--endpoint", metavar="NAME", help="only those that come in or go out through this endpoint")
    tap.add_argument("--source", metavar="URI", help="only those from this source: a UUri or a pattern")
    tap.add_argument("--sink", metavar="URI", help="only those to this sink: a UUri or a pattern")
    tap.add_argument("--type", metavar="NAME", help="only these types, such as publish,request")
    tap.add_argument("--outcome", metavar="NAME", help="only these outcomes, such as delivered,sent,dead_lettered")
    forms = ("none", "length", "hex", "json", "text")
    tap.add_argument("--payload", choices=forms, default="length", help="how to print the payload; default: length")
    tap.add_argument("--rate", type=int, default=100, metavar="N", help="at most N messages a second; default: 100")
    tap.add_argument("--count", type=number, metavar="N", help="end after N messages")
    tap.add_argument("--json", action="store_true", help="one JSON object per line")
