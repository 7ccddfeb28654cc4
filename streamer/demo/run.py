"""The demonstration from start to end: ``streamer demo``."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from streamer.demo import display, scenario
from streamer.demo.cloud import Cloud
from streamer.demo.ledger import Ledger
from streamer.demo.metrics import Snapshot
from streamer.demo.processes import START_S, DemoError, DemoProcesses, until
from streamer.demo.timing import now_s
from streamer.demo.vehicle import Vehicle

SETTLE_S = 15.0
_LOOK_S = 0.25
_LINE_S = 1.0


async def run(seconds: float | None, plain: bool) -> int:
    """Run for ``seconds``, or until Ctrl-C. Return 0 if all messages are accounted for, else 1."""
    console = Console(width=None if sys.stdout.isatty() else display.PLAIN_WIDTH, highlight=False)
    processes = DemoProcesses()
    demo = DemoRun(processes, console, plain or not sys.stdout.isatty())
    status = 1
    try:
        with demo.signals():
            async with processes:
                try:
                    status = await demo.run(seconds)
                finally:
                    if status and not demo.is_aborted and (kept := processes.keep_log()) is not None:
                        print(f"streamer demo: the daemon's log lines are in {kept}", file=sys.stderr)
    except asyncio.CancelledError:
        if not demo.is_aborted:
            raise
        print("streamer demo: ended before everything had settled", file=sys.stderr)
    except (DemoError, BaseExceptionGroup) as error:
        for each in _flat(error):
            if not isinstance(each, DemoError):
                raise
            print(f"streamer demo: {each}", file=sys.stderr)
    return status


class DemoRun:
    """One demonstration, on running processes."""

    def __init__(self, processes: DemoProcesses, console: Console, plain: bool) -> None:
        self._processes = processes
        self._console = console
        self._plain = plain
        self._ledger = Ledger(scenario.FLOWS, answered=scenario.ANSWERED_CALLS, silent=scenario.SILENT_CALLS)
        self._snapshot = Snapshot()
        self._begun_s = now_s()
        self._status = "starting"
        self._stop = asyncio.Event()
        self._is_sending = False
        self._is_over = False
        self.is_aborted = False

    async def run(self, seconds: float | None) -> int:
        """Run the demonstration for ``seconds``, or until Ctrl-C. Return the exit status."""
        async with (
            Vehicle(self._processes.zenoh, self._ledger) as vehicle,
            Cloud(self._processes.mqtt_port, self._ledger) as cloud,
            asyncio.TaskGroup() as tasks,
        ):
            extras = [
                tasks.create_task(self._processes.watch(), name="daemon"),
                tasks.create_task(cloud.listen(), name="cloud-listen"),
                tasks.create_task(vehicle.answer(), name="vehicle-answer"),
                tasks.create_task(self._read(), name="metrics"),
                tasks.create_task(self._draw(), name="draw"),
            ]
            await self._until_connected(vehicle, cloud)
            await self._perform(vehicle, cloud, seconds)
            last = await self._settle()
            for task in extras:
                task.cancel()
        return self._conclude(last)

    async def _until_connected(self, vehicle: Vehicle, cloud: Cloud) -> None:
        self._status = "waiting until the daemon hears vehicle and cloud"

        def connected() -> bool:
            return self._snapshot.is_up("vehicle") and self._snapshot.is_up("cloud") and vehicle.is_heard

        if not await until(connected, START_S):
            endpoints = ", ".join(f"{d.name} {'up' if d.is_up else 'not up'}" for d in self._snapshot.endpoints) or "unknown"
            heard = "hears" if vehicle.is_heard else "does not hear"
            raise DemoError(f"not connected within {START_S:.0f} s: endpoints: {endpoints}; the daemon {heard} the vehicle")
        await cloud.warm_up()

    async def _perform(self, vehicle: Vehicle, cloud: Cloud, seconds: float | None) -> None:
        """Have vehicle and cloud send until the time is over, or until Ctrl-C."""
        self._begun_s = now_s()
        self._is_sending = True
        ending = "(Ctrl-C ends it)" if seconds is None else f"of {seconds:g} s (Ctrl-C ends it)"
        self._status = ending
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._stop.set)
        try:
            async with asyncio.TaskGroup() as senders:
                senders.create_task(vehicle.run(self._stop), name="vehicle")
                senders.create_task(cloud.run(self._stop), name="cloud")
        finally:
            if timer is not None:
                timer.cancel()
        self._status = "the senders have stopped, the rest is settling"

    async def _settle(self) -> Snapshot | None:
        """Wait until all is accounted for and the daemon is empty, or a time limit. Return the last snapshot."""
        deadline_s = now_s() + SETTLE_S
        while True:
            all_came = await until(lambda: not self._ledger.open, deadline_s - now_s())
            last = await self._processes.snapshot()
            if (all_came and last is not None and not last.queued) or now_s() > deadline_s:
                return last
            await asyncio.sleep(_LOOK_S)

    async def _read(self) -> None:
        while True:
            self._snapshot = await self._processes.snapshot() or self._snapshot
            await asyncio.sleep(_LOOK_S)

    async def _draw(self) -> None:
        if self._plain:
            while True:
                status = "" if self._status.endswith("(Ctrl-C ends it)") else self._status
                print(display.line(self._ledger, self._snapshot, now_s(), self._begun_s, status), flush=True)
                await asyncio.sleep(_LINE_S)
        with Live(console=self._console, screen=True, auto_refresh=False) as picture:
            while True:
                status = f"{now_s() - self._begun_s:.0f} s {self._status}"
                size = (self._console.width, self._console.height)
                picture.update(display.live(self._ledger, self._snapshot, now_s(), status, size), refresh=True)
                await asyncio.sleep(_LOOK_S)

    def _conclude(self, last: Snapshot | None) -> int:
        self._is_over = True
        problems = self._ledger.problems()
        if last is None:
            problems.append("the daemon's metrics cannot be read at the end")
        else:
            problems += [f"the books of route {b.route} do not balance" for b in last.books if not b.balance]
            if last.queued:
                problems.append(f"{last.queued} still queued in the daemon after {SETTLE_S:.0f} s")
        display.summary(self._console, self._ledger, last)
        self._console.print(display.verdict(self._ledger, problems), style="bold red" if problems else "bold green")
        return 1 if problems else 0

    @contextmanager
    def signals(self) -> Iterator[None]:
        """While messages are sent, the first Ctrl-C stops the senders. Before that, and the second time, it ends the run.

        After the run, signals are ignored: the process is about to end, with the exit status of the run.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def interrupt(number: signal.Signals) -> None:
            if self._is_over or self.is_aborted:  # the end of the processes must not be interrupted
                return
            if not self._is_sending or self._stop.is_set() or number is signal.SIGHUP:  # the terminal has gone
                self.is_aborted = True
                task.cancel()
            self._stop.set()

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, interrupt, number)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
            for number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def _flat(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _flat(each)
    else:
        yield error
