"""The program: ``streamer``, or ``python -m streamer``."""

import contextlib
import gc
import logging
import os
import signal
import sys
from typing import NoReturn

if sys.argv[1:2] == ["run"]:  # a SIGHUP during the imports would end the process; the daemon handles it when it is ready
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})

# Messages have no reference cycles, and imported modules stay: collecting less often saves a fifth of the CPU of the start,
# and a tenth of that of a message. The first number also determines the length of a pause: 0.5 ms for each 1000 young
# objects. It is larger than the objects of a full window of messages, so that traffic alone triggers no collection.
gc.set_threshold(15_000, 50, 100)


def _interrupted() -> NoReturn:
    """End the process by SIGINT, as Ctrl-C ends other programs: a calling script sees the signal, without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(128 + signal.SIGINT)  # the signal is blocked


try:
    from streamer.main import main  # this import is most of the start
except KeyboardInterrupt:
    _interrupted()


def program() -> NoReturn:
    """Run the command line, and end the process with its exit status.

    Everything is closed by then. The interpreter's own finalization is skipped: threads of libraries (Zenoh's) that call
    into it meanwhile would abort the process.
    """
    _standard_streams()
    try:
        status = main()
    except KeyboardInterrupt:
        status = None
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # the reader has gone
            stream.flush()
    if status is None:
        _interrupted()
    os._exit(status)


def _standard_streams() -> None:
    """Open closed standard streams to /dev/null, and escape characters that the encoding lacks.

    So no socket gets the number of a standard stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open as long as the process
        elif mode == "w":
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    program()
