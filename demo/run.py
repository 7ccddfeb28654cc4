"""The demonstration from start to end: ``python -m demo``."""

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from demo import display, scenario
from demo.cloud import Cloud
from demo.ledger import Ledger
from demo.metrics import Snapshot
from demo.pair import SECONDS, PairStory
from demo.processes import START_S, DemoError, DemoProcesses, until
from demo.timing import now_s, wait
from demo.vehicle import Vehicle

SETTLE_S = 45.0
_LOOK_S = 0.25
_LINE_S = 1.0


async def run(seconds: float | None, plain: bool, is_pair: bool) -> int:
    """Run for ``seconds``, or until Ctrl-C. Return 0 if all messages are accounted for, else 1."""
    if is_pair and seconds is None:
        seconds = SECONDS
    console = Console(width=None if sys.stdout.isatty() else display.PLAIN_WIDTH, highlight=False)
    processes = DemoProcesses(is_pair)
    demo = DemoRun(processes, console, plain or not sys.stdout.isatty())
    status = 1
    try:
        with demo.signals():
            async with processes:
                try:
                    status = await demo.run(seconds)
                finally:
                    if status and not demo.is_aborted and (kept := processes.keep_logs()):
                        print(f"demo: the daemon's log lines are in {', '.join(kept)}", file=sys.stderr)
    except asyncio.CancelledError:
        if not demo.is_aborted:
            raise
        print("demo: ended before everything had settled", file=sys.stderr)
    except (DemoError, BaseExceptionGroup) as error:
        for each in _flat(error):
            if not isinstance(each, DemoError):
                raise
            print(f"demo: {each}", file=sys.stderr)
    return status


class DemoRun:
    """One demonstration, on running processes."""

    def __init__(self, processes: DemoProcesses, console: Console, plain: bool) -> None:
        self._processes = processes
        self._console = console
        self._plain = plain
        self._ledger = Ledger(scenario.FLOWS, answered=scenario.ANSWERED_CALLS, silent=scenario.SILENT_CALLS)
        self._snapshot = Snapshot()  # the last one of the daemon that works
        self._story: PairStory | None = None
        self._begun_s = now_s()
        self._status = "starting"
        self._stop = asyncio.Event()
        self._is_sending = False
        self._is_over = False
        self.is_aborted = False

    async def run(self, seconds: float | None) -> int:
        """Run the demonstration for ``seconds``, or until Ctrl-C. Return the exit status."""
        async with (
            Vehicle([daemon.zenoh for daemon in self._processes.daemons], self._ledger) as vehicle,
            Cloud(self._processes.mqtt_port, self._ledger) as cloud,
            asyncio.TaskGroup() as tasks,
        ):
            if len(self._processes.daemons) > 1:
                self._story = PairStory(self._processes, self._ledger, lambda: vehicle.is_heard)
            extras = [
                tasks.create_task(cloud.listen(), name="cloud-listen"),
                tasks.create_task(vehicle.answer(), name="vehicle-answer"),
                tasks.create_task(self._read(), name="daemons"),
                tasks.create_task(self._draw(), name="draw"),
            ]
            await self._until_connected(vehicle, cloud)
            await self._perform(vehicle, cloud, seconds)
            await self._settle()
            for task in extras:
                task.cancel()
        return self._conclude()

    async def _until_connected(self, vehicle: Vehicle, cloud: Cloud) -> None:
        self._status = "waiting until the daemon hears vehicle and cloud"

        def connected() -> bool:
            return self._snapshot.is_up("vehicle") and self._snapshot.is_up("cloud") and vehicle.is_heard

        if not await until(connected, START_S):
            endpoints = ", ".join(f"{d.name} {'up' if d.is_up else 'not up'}" for d in self._snapshot.endpoints) or "unknown"
            heard = "hears" if vehicle.is_heard else "does not hear"
            raise DemoError(f"not connected within {START_S:.0f} s: endpoints: {endpoints}; the daemon {heard} the vehicle")
        await cloud.warm_up()
        if self._story is not None and not await self._story.begin():
            raise DemoError(f"not a protected pair within {START_S:.0f} s: {self._story.why_unprotected()}")

    async def _perform(self, vehicle: Vehicle, cloud: Cloud, seconds: float | None) -> None:
        """Have vehicle and cloud send until the time is over, or until Ctrl-C."""
        self._begun_s = now_s()
        self._is_sending = True
        ending = "(Ctrl-C ends it)" if seconds is None else f"of {seconds:g} s (Ctrl-C ends it)"
        self._status = ending
        async with asyncio.TaskGroup() as senders:
            senders.create_task(vehicle.run(self._stop), name="vehicle")
            senders.create_task(cloud.run(self._stop), name="cloud")
            if self._story is not None and seconds is not None:
                await self._story.run(seconds, self._stop)
            else:
                await wait(self._stop, seconds)
            self._stop.set()
        self._status = "the senders have stopped, the rest is settling"

    async def _settle(self) -> None:
        """Wait until all is accounted for and the daemons are empty, or a time limit."""
        deadline_s = now_s() + SETTLE_S
        while True:
            all_came = await until(lambda: not self._ledger.open, deadline_s - now_s())
            await self._processes.read()
            is_empty = all(last is not None and not last.queued for last in self._processes.latest.values())
            if (all_came and is_empty) or now_s() > deadline_s:
                return
            await asyncio.sleep(_LOOK_S)

    async def _read(self) -> None:
        while True:
            await self._processes.read()
            working = (last for last in self._processes.latest.values() if last is not None and last.is_working)
            self._snapshot = next(working, self._snapshot)
            await asyncio.sleep(_LOOK_S)

    async def _draw(self) -> None:
        if self._plain:
            told = 0
            while True:
                events = [] if self._story is None else self._story.events
                for event in events[told:]:
                    print(f"{event.at_s:5.1f} s | {event.streamer} {event.text}", flush=True)
                told = len(events)
                status = "" if self._status.endswith("(Ctrl-C ends it)") else self._status
                print(display.line(self._ledger, self._snapshot, now_s(), self._begun_s, status), flush=True)
                await asyncio.sleep(_LINE_S)
        with Live(console=self._console, screen=True, auto_refresh=False) as picture:
            while True:
                status = f"{now_s() - self._begun_s:.0f} s {self._status}"
                size = (self._console.width, self._console.height)
                picture.update(display.live(self._ledger, self._snapshot, now_s(), status, size, self._story), refresh=True)
                await asyncio.sleep(_LOOK_S)

    def _conclude(self) -> int:
        self._is_over = True
        told = [] if self._story is None else self._story.problems
        problems = self._ledger.problems() + told + faults(self._processes.latest)
        display.summary(self._console, self._ledger, self._snapshot, self._story)
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


def faults(latest: Mapping[str, Snapshot | None]) -> list[str]:
    """Return a sentence for each fault in the last answers of the daemons, by their names, once they are idle."""
    found = []
    for name, last in latest.items():
        if last is None:
            found.append(f"the metrics of '{name}' cannot be read at the end")
            continue
        found += [
            f"the books of route {books.route} in '{name}' do not balance" for books in last.books if not books.balance
        ]
        if last.queued:
            found.append(f"{last.queued} still queued in '{name}' after {SETTLE_S:.0f} s")
    return found


def _flat(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _flat(each)
    else:
        yield error
