"""The program: ``streamer``, or ``python -m streamer``."""

import contextlib
import gc
import logging
import os
import signal
import sys
from typing import NoReturn

if sys.argv[1:2] == ["run"]:  # a SIGHUP while the rest is imported would end the process; the daemon obeys it when it can
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})

# Messages have no reference cycles, and what is imported stays: collecting less often saves a fifth of the CPU of the start,
# and a tenth of that of a message. The first number is also how long a pause is: 0.5 ms for each 1000 young objects. It is
# more than a full window of messages has, so that traffic alone asks for no collection.
gc.set_threshold(15_000, 50, 100)


def _interrupted() -> NoReturn:
    """End as Ctrl-C ends other programs: by the signal, which a calling script sees, and without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(128 + signal.SIGINT)  # the signal is blocked


try:
    from streamer.cli.main import main  # they are the most of the start
except KeyboardInterrupt:
    _interrupted()


def program() -> NoReturn:
    """Run the command line, and end the process with its exit status.

    Everything is closed by then. The interpreter's own end is left out: threads of libraries (Zenoh's) that ask for it
    meanwhile would abort the process.
    """
    _standard_streams()
    try:
        status = main()
    except KeyboardInterrupt:
        status = None
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    if status is None:
        _interrupted()
    os._exit(status)


def _standard_streams() -> None:
    """Have all three, and print whatever the encoding lacks by its number.

    Those that were closed lead nowhere, and no socket gets their numbers.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process
        elif mode == "w":
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    program()
