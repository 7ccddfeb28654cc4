"""Ctrl-C for commands that run until the user presses it."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_AGAIN_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGALRM)


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    """End the block at Ctrl-C, without an error. For the main thread; uses SIGALRM.

    Python drops a KeyboardInterrupt that is raised in a destructor, or where a library in C clears errors. So it is raised
    again until the block has ended. Where Ctrl-C is ignored, as in the background of a script, it stays ignored.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    before = {} if is_ignored else {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    raise KeyboardInterrupt
