"""``python -m demo``, which ``make demo`` runs. Exit status 0: every message is accounted for."""

import argparse
import asyncio
import sys

from demo.run import run


def main() -> int:
    """Run the demonstration as the command line says."""
    text = "Run a demonstration with a broker, a vehicle, a cloud and the streamer."
    parser = argparse.ArgumentParser(prog="demo", description=text, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, metavar="N", help="end after N seconds (with --pair: 20 by default)")
    parser.add_argument("--pair", action="store_true", help="two streamers as a pair, of which the active one is killed")
    parser.add_argument("--plain", action="store_true", help="print lines instead of a live table")
    arguments = parser.parse_args()
    return asyncio.run(run(seconds=arguments.seconds, plain=arguments.plain, is_pair=arguments.pair))


if __name__ == "__main__":
    sys.exit(main())
