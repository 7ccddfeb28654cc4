"""uEntities on a Zenoh network: a source in this process, and receivers and routers that can be stopped and killed.

Zenoh confirms nothing. A message has to arrive once the daemon has counted it as received (`ZenohSource.hand_over`). A
source puts only while somebody's subscription matches.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import zenoh

from tests.fault.load import Book, Pump
from tests.fault.zenoh_node import session_config
from tests.independent.message import Plain
from tests.independent.zenoh import attachment_of, is_matched, zenoh_key
from tests.process import ROOT

RESTLESS_S = 1.0
PRIORITIES = {2: zenoh.Priority.DATA_LOW, 4: zenoh.Priority.DATA_HIGH, 5: zenoh.Priority.INTERACTIVE_LOW}


class ZenohSource:
    """A uEntity that puts, in a session of its own in this process and a thread of its own."""

    def __init__(
        self, side: str, book: Book, *, mode: str = "peer", listen: Iterable[str] = (), connect: Iterable[str] = ()
    ) -> None:
        self.side = side
        self.pump = Pump()
        self.puts: list[bytes] = []
        """Ids in the order in which they were put."""
        self.put_s: list[float] = []
        """When each of them was."""
        self.is_matched = False
        """Everything that it puts has a subscriber."""
        self.is_alone = True
        """Nothing has."""
        self.error: Exception | None = None
        self._unmatched_s = 0.0
        self._config = session_config(mode=mode, listen=listen, connect=connect)
        self._book = book
        self._base = 0
        self._ends = False
        self._publishers: dict[str, zenoh.Publisher] = {}
        self._thread = threading.Thread(target=self._run, name=f"zenoh-{side}", daemon=True)

    def start(self) -> None:
        self._session = zenoh.open(self._config)
        # The daemon subscribes to what has a sink and to Publishes, with wildcards: one key stands for each.
        keys = (f"up/{self.side}/100/0/1/8100/cloud/1/0/1/0", f"up/{self.side}/200/0/1/8003/{{}}/{{}}/{{}}/{{}}/{{}}")
        self._watches = [self._session.declare_publisher(key) for key in keys]
        self._thread.start()

    def close(self) -> None:
        self._ends = True
        self._thread.join(30)
        with contextlib.suppress(zenoh.ZError):  # on a busy machine its 10 s may not be enough, and nobody needs it any more
            self._session.close()

    @property
    def zid(self) -> str:
        """Its Zenoh id."""
        return str(self._session.zid())

    def new_daemon(self) -> None:
        """From now on the daemon counts from zero again."""
        self._base = len(self.puts)

    def hand_over(self, received: int, unordered: int = 0) -> None:
        """The daemon has counted so many messages since it started: these have to arrive.

        ``unordered`` are as many of the last ones that need not: different priorities overtake each other.
        """
        for message_id in self.puts[self._base : max(self._base, self._base + received - unordered)]:
            self._book.ledger.acknowledged(message_id)

    def hand_over_put_before_the_end(self, margin_s: float) -> None:
        """The daemon has stopped to receive, by itself: what was put this long before the source saw it has to arrive.

        What was on the wire at that moment was taken by no session.
        """
        assert not self.is_matched, "the daemon still receives"
        before_s = self._unmatched_s - margin_s
        for message_id, put_s in zip(self.puts[self._base :], self.put_s[self._base :], strict=False):
            if put_s < before_s:
                self._book.ledger.acknowledged(message_id)

    def since_start(self) -> int:
        """Messages put since this daemon started."""
        return len(self.puts) - self._base

    def _run(self) -> None:
        try:
            while not self._ends:
                matches = [is_matched(watch) for watch in self._watches]
                if self.is_matched and not all(matches):
                    self._unmatched_s = time.monotonic()
                self.is_matched, self.is_alone = all(matches), not any(matches)
                if not self.is_matched or (message := self.pump.next()) is None:
                    time.sleep(0.002)
                    continue
                self.put_s.append(time.monotonic())
                self._publisher(message).put(message.payload, attachment=attachment_of(message))
                self.puts.append(message.id)
        except Exception as exc:
            self.error = exc
            raise

    def _publisher(self, message: Plain) -> zenoh.Publisher:
        key = zenoh_key(message)
        if key not in self._publishers:
            self._publishers[key] = self._session.declare_publisher(
                key,
                congestion_control=zenoh.CongestionControl.BLOCK,
                priority=PRIORITIES.get(message.priority, zenoh.Priority.DATA_LOW),
            )
        return self._publishers[key]


@asynccontextmanager
async def restless_node(*endpoints: str) -> AsyncIterator[None]:
    """A node that subscribes to nothing joins once a second, and leaves."""

    async def join() -> None:
        while True:
            session = await asyncio.to_thread(zenoh.open, session_config(connect=endpoints))
            await asyncio.sleep(RESTLESS_S / 2)
            await asyncio.to_thread(session.close)
            await asyncio.sleep(RESTLESS_S / 2)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(join(), name="restless node")
        yield
        task.cancel()


class ZenohNode:
    """A receiver or router in a process of its own (`tests.fault.zenoh_node`), to be stopped, killed and started again."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.out = directory / f"zenoh-{os.urandom(3).hex()}.lines"
        self.out.touch()
        self._arguments = [*arguments, "--out", str(self.out)]
        self._position = 0
        self._process: subprocess.Popen[str] | None = None
        self.zid = ""
        """Its Zenoh id while it runs."""

    def start(self) -> None:
        """Returns when its session is open and its subscriptions are declared."""
        log = self.out.with_suffix(".log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fault.zenoh_node", *self._arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        ready, _, self.zid = line.strip().partition(" ")
        assert ready == "ready", f"{line!r}: {self.out.with_suffix('.log').read_text()[-2000:]}"

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: what it had not written down is gone."""
        process, self._process, self.zid = self._process, None, ""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def poll(self, take: Callable[[Plain, float], None]) -> None:
        """Hand over what it has written since the last time, and when that arrived, by the monotonic clock."""
        with self.out.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._position += end
        for line in data[:end].splitlines():
            values = json.loads(line)
            take(
                Plain(
                    values["type"],
                    tuple(values["source"]),
                    payload=bytes.fromhex(values["payload"]),
                    commstatus=values["commstatus"],
                    reqid=bytes.fromhex(values["reqid"]) or None,
                    id=bytes.fromhex(values["id"]),
                ),
                values["at_s"],
            )
