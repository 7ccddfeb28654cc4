"""The program: ``streamer``, or ``python -m streamer``."""

import contextlib
import logging
import os
import sys
from typing import NoReturn

from streamer.cli.main import main


def program() -> NoReturn:
    """Run the command line, and end the process with its exit status.

    Everything is closed by then. The interpreter's own end is left out: threads of libraries (Zenoh's) that ask for it
    meanwhile would abort the process.
    """
    status = main()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    program()
