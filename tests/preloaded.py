"""Starts daemons as forks of a process that has loaded the program already: loading it takes half a second each time.

A fork is a process of its own: it has its own log, environment, working folder and signals, and can be killed. What must be
started as a user does it (the command line, memory at rest, other versions) is started as a program instead.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.waiting import until

_ROOT = Path(__file__).parents[1]
_PRELOADED = (
    "streamer.main",
    "streamer.daemon",
    "streamer.features.traces.compact",
    "streamer.features.traces.tracing",
    "streamer.transports.mqtt5.transport",
    "streamer.transports.zenoh.transport",
)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(list(_PRELOADED))


class ForkedStreamer:
    """``streamer ARGV``, with the methods of a `subprocess.Popen` that tests use."""

    def __init__(
        self, argv: Sequence[str], cwd: Path, log: Path, environ: Mapping[str, str], errors: Path | None = None
    ) -> None:
        """``log`` gets the standard error too, unless ``errors`` does.

        What the program loads is decided already: of ``environ`` only what it reads later counts, not PYTHONPATH.
        """
        log.touch()
        self._process: ForkServerProcess = FORKS.Process(
            target=_main, args=(list(argv), str(cwd), str(log), str(errors or log), dict(environ)), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit status; negative for a signal, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("streamer", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def command(*argv: str | Path, within_s: float = 30) -> "subprocess.CompletedProcess[str]":
    """``streamer ARGV``, to its end."""
    words = [str(word) for word in argv]
    with tempfile.TemporaryDirectory(prefix="command-") as directory:
        out, err = Path(directory) / "out", Path(directory) / "err"
        process = ForkedStreamer(words, _ROOT, out, os.environ, err)
        try:
            await until(lambda: process.poll() is not None, "the end of the command", within_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(words, process.wait(), out.read_text(), err.read_text())


def _main(argv: list[str], cwd: str, log: str, errors: str, environ: dict[str, str]) -> None:
    """In the fork: become the program."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    for number, file in ((1, log), (2, errors)):
        opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the process that is forked ignores it
    from streamer.main import main  # noqa: PLC0415  # in the fork, where it is loaded already

    sys.orig_argv = [sys.executable, "-m", "streamer", *argv]  # with which it may execute itself anew
    sys.exit(main(argv))
