"""The driver's end of the pipes to the services: starts a child, writes frames, reads frames, kills it."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

SILENCE_S = 30.0


class KilledError(Exception):
    """The child has ended, by a signal that it was given or gave itself."""


class ServicesProcess:
    """A context manager. One child at a time, each on the same file."""

    def __init__(self, directory: Path) -> None:
        self._errors = (directory / "child.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.services_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._lines: list[bytes] = []
        self._rest = b""
        self._pid = 0

    def __enter__(self) -> "ServicesProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        if self._pid:
            self.kill()
        with self._process as process:
            process.kill()
        self._errors.close()

    def begin(self, path: Path | None, now_ms: int, crossings: int | None) -> list[dict[str, Any]]:
        """Start a child. Returns its frames up to the one that says ready. Raises `KilledError` if it ends before."""
        start = {"path": None if path is None else str(path), "now_ms": now_ms, "crossings": crossings}
        os.write(self._in, b"\n" + json.dumps({"start": start}).encode() + b"\n")
        frame = self._frame(SILENCE_S)
        assert frame is not None
        self._pid = frame["pid"]
        frames = []
        while "ready" not in frame:
            frame = self.read() or {}
            frames.append(frame)
        return frames

    def write(self, **frame: Any) -> None:
        os.write(self._in, json.dumps(frame).encode() + b"\n")

    def kill(self) -> None:
        """SIGKILL; `read` tells when it is over."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def read(self, within_s: float | None = None) -> dict[str, Any] | None:
        """The next frame; None if there is none within a given time. Raises `KilledError`."""
        frame = self._frame(SILENCE_S if within_s is None else within_s)
        if frame is None:
            assert within_s is not None, f"the services have said nothing for {SILENCE_S} s"
        elif "ended" in frame:
            self._pid = 0
            assert frame["ended"] == signal.SIGKILL, f"the services have ended with {frame['ended']}"
            raise KilledError
        return frame

    def _frame(self, within_s: float) -> dict[str, Any] | None:
        deadline_s = time.monotonic() + within_s
        while True:
            while self._lines:
                line = self._lines.pop(0)
                with contextlib.suppress(json.JSONDecodeError):  # torn by the kill, or empty
                    found: dict[str, Any] = json.loads(line)
                    return found
            if not select.select([self._out], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                return None
            data = os.read(self._out, 1 << 16)
            assert data, "the fork server has ended"
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines += lines
