"""``streamer top`` beside a real daemon: printed once, and on a terminal, until Ctrl-C."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios

from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.process import ROOT
from tests.waiting import until

SPEED = ("alpha", 0x10, 1, 0x8001)


class Terminal:
    """A program on a terminal of 24 lines; ``text`` is all that it has printed."""

    def __init__(self, *argv: str, columns: int = 100, kind: str = "xterm-256color") -> None:
        self._text = b""
        child, self._number = pty.fork()
        if child == 0:
            os.chdir(ROOT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as a shell on a terminal does, wherever the tests run
            without_size = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            os.execve(sys.executable, [sys.executable, "-m", "streamer", *argv], without_size | {"TERM": kind})
        self._child = child
        fcntl.ioctl(self._number, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.set_blocking(self._number, False)

    @property
    def text(self) -> str:
        try:
            while more := os.read(self._number, 65536):
                self._text += more
        except (BlockingIOError, OSError):
            pass
        return self._text.decode(errors="replace")

    def press(self, keys: bytes) -> None:
        os.write(self._number, keys)

    async def shows(self, words: str, after: int = 0) -> int:
        """Wait until it has printed words beyond a position; where it has got to."""
        await until(lambda: words in self.text[after:], what=words)
        return len(self._text.decode(errors="replace"))

    async def ended(self) -> int:
        found: list[int] = []

        def has_ended() -> bool:
            assert self.text is not None  # what nobody reads holds it up
            number, status = os.waitpid(self._child, os.WNOHANG)
            found.append(os.waitstatus_to_exitcode(status) if number else -99)
            return bool(number)

        await until(has_ended, what="the end of the program")
        os.close(self._number)
        return found[-1]


async def once(*words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "streamer", "top", *words),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    text, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, text.decode()


async def test_it_shows_a_gateway_by_its_file_and_by_its_url_and_survives_its_restart() -> None:
    async with Topology("zenoh", "mqtt/off-vehicle") as topology:
        daemon = topology.daemon
        await topology.exchange(0, [Plain(1, SPEED, payload=b"x", payload_format=6, priority=2)])
        url = f"http://127.0.0.1:{daemon.admin}"
        for words in (("--config", str(daemon.path)), ("--url", url)):
            status, text = await once(*words, "--interval", "0.2")  # no terminal: once
            assert status == 0, text
            assert "first-second" in text
            assert "\x1b" not in text
        dumb = Terminal("top", "--url", url, "--interval", "0.1", kind="dumb")
        at = await dumb.shows("first-second")
        await dumb.shows("first-second", at)
        assert "\x1b" not in dumb.text
        dumb.press(b"\x03")
        assert await dumb.ended() == 0
        top = Terminal("top", "--url", url, "--interval", "0.1", columns=60)
        at = await top.shows("\x1b[H\x1b[J")
        at = await top.shows("first-second", at)
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
        at = await top.shows("no streamer answers there", at)
        daemon.start()
        await daemon.until_up()
        await until(lambda: "no streamer answers" not in top.text[-2500:], what="the gateway's return")
        screen = top.text.rpartition("\x1b[H\x1b[J")[0].rpartition("\x1b[H\x1b[J")[2].splitlines()
        assert max(map(len, screen)) == 60
        assert len(screen) < 24
        top.press(b"\x03")
        assert await top.ended() == 0
