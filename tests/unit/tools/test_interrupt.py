"""Ctrl-C ends what goes on until then, also where Python drops a KeyboardInterrupt."""

import signal
import sys
from collections.abc import Iterator

import pytest

from streamer.tools.interrupt import until_interrupted
from streamer.tools.running import DaemonAddress
from streamer.tools.top import Gateway, _watch


class Destroyed:
    """Ctrl-C is pressed while this is taken apart: what is raised then goes nowhere."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _on_a_terminal() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests run
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[type[BaseException]]:
    """What Python has dropped."""
    kinds: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: kinds.append(what.exc_type))
    return kinds


def test_an_interrupt_that_was_dropped_is_raised_again(dropped: list[type[BaseException]]) -> None:
    rounds = 0
    with until_interrupted():
        while True:
            if not rounds:
                Destroyed()
            rounds += 1
    assert dropped == [KeyboardInterrupt]
    assert rounds > 0


def test_what_ends_by_itself_is_not_interrupted_later(dropped: list[type[BaseException]]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
    with until_interrupted():
        Destroyed()
    assert dropped == [KeyboardInterrupt]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)) == before


def test_where_it_is_ignored_it_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with until_interrupted():
        signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_plain_display_ends_although_the_interrupt_came_during_a_reading(dropped: list[type[BaseException]]) -> None:
    class Interrupted(Gateway):
        def read(self) -> None:
            if not dropped:
                Destroyed()

    with until_interrupted():
        _watch(Interrupted("gw", DaemonAddress("http://gw", "gw", lambda: None)), 0.1, can_clear=False)
    assert dropped == [KeyboardInterrupt]
