"""Tracing as the daemon sees it: a recorder for the router, a spool behind it, and a sealing now and then."""

import json
import logging
import subprocess
import sys
import threading
import time
from dataclasses import fields

from streamer.config.models import TraceConfig
from streamer.traces.layout import Deleted, Folders, Sealed
from streamer.traces.record import Buffer
from streamer.traces.recorder import Recorder
from streamer.traces.spool import Spool

logger = logging.getLogger("ustreamer.trace")

_AGAIN_S = 60.0  # after which a sealing that failed is repeated
_SEALING_S = 3600.0  # after which one that hangs is ended
_AT_END_S = 10.0  # that the end of the daemon waits for the last sealing


class Tracing:
    """Traces of one streamer. ``transports``: the kind of transport of each endpoint, by name."""

    def __init__(self, config: TraceConfig, streamer: str, transports: dict[str, str]) -> None:
        self.folders = Folders(config.path, streamer)
        self.sealed = Sealed()
        self.failures = 0
        self._streamer = streamer
        self._max_bytes = config.max_bytes
        self._wanted = threading.Event()
        self._ending = threading.Event()
        self._is_started = False
        self._process: subprocess.Popen[bytes] | None = None
        self._spool = Spool(
            self.folders, time.time_ns() // 1000, config.rotate_s, config.rotate_bytes, config.max_bytes, self._wanted.set
        )
        self.recorder = Recorder(transports, self._take, _offset_us)
        self._thread = threading.Thread(target=self._seal_when_wanted, name="trace-sealing", daemon=True)

    @property
    def written(self) -> int:
        """Records in the spool or sealed."""
        return self._spool.written

    @property
    def dropped(self) -> int:
        """Records that were not written: holes in ``seq``."""
        return self.recorder.dropped + self._spool.dropped

    @property
    def deleted(self) -> Deleted:
        """What went because traces are bounded."""
        sealed, spool = self.sealed, self._spool.deleted
        return Deleted(sealed.deleted_files + spool.files, sealed.deleted_bytes + spool.bytes)

    @property
    def problem(self) -> str:
        """Why records are being dropped; empty if they are not."""
        return self._spool.problem

    def start(self) -> None:
        """Begin: what an earlier run has left is sealed first."""
        self._is_started = True
        self._spool.start()
        self._thread.start()

    def stop(self) -> None:
        """Write what there is and seal it, within some seconds. What is not done then is done at the next start. Blocks."""
        if not self._is_started:
            return
        self.recorder.hand_on()
        end_s = time.monotonic() + _AT_END_S
        if not self._spool.stop(_AT_END_S):
            logger.error("trace_not_closed folder=%s reason=%s", self.folders.path, self.problem or "the disk is slow")
        self._ending.set()
        self._wanted.set()
        self._thread.join(max(0.0, end_s - time.monotonic()))
        if self._process is not None and self._thread.is_alive():
            self._process.terminate()

    def _take(self, buffer: Buffer) -> bool:
        return self._spool.take(buffer)

    def _seal_when_wanted(self) -> None:
        is_behind = False
        while True:
            self._wanted.wait(_AGAIN_S if is_behind else None)
            self._wanted.clear()
            is_ending = self._ending.is_set()
            is_behind = not self._seal()
            if is_ending:
                return

    def _seal(self) -> bool:
        """Have a process seal what is closed; whether it left nothing."""
        arguments = [str(self.folders.path), self._streamer, str(self._max_bytes)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streamer.traces.compact", *arguments],
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
            )
            with self._process as process:
                try:
                    said, _ = process.communicate(timeout=_SEALING_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise
            done = Sealed(**json.loads(said.splitlines()[-1]))
        except (OSError, subprocess.TimeoutExpired, ValueError, IndexError, TypeError) as exc:
            done = Sealed(problems=[f"the sealing process failed: {type(exc).__name__}"])
        for problem in done.problems:
            self.failures += 1
            logger.error("trace_not_sealed folder=%s problem=%s", self.folders.path, problem)
        if done.torn:
            logger.info("trace_torn files=%d consequence=%s", done.torn, "records of the last second before a kill are lost")
        if done.bad:
            logger.error("trace_files_bad files=%d consequence=%s", done.bad, "they are kept as .arrows.bad and not sealed")
        if done.deleted_files:
            logger.info("trace_deleted files=%d bytes=%d reason=%s", done.deleted_files, done.deleted_bytes, "max_bytes")
        for each in fields(Sealed):
            if each.name == "bytes":
                self.sealed.bytes = done.bytes or self.sealed.bytes
            elif each.name != "problems":
                setattr(self.sealed, each.name, getattr(self.sealed, each.name) + getattr(done, each.name))
        return not done.problems


def _offset_us() -> int:
    return (time.time_ns() - time.monotonic_ns()) // 1000
