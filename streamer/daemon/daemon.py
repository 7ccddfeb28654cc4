"""Runs a streamer: standby, journal, start, tick, drain and stop, in this order."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable
from pathlib import Path

from streamer import __version__, systemd
from streamer.clock import Clock
from streamer.config.models import Config
from streamer.daemon.assembly import Assembly
from streamer.daemon.reload import Reloading
from streamer.delivery.lifecycle.departure import Drain, stop_all, take_arrivals
from streamer.delivery.router import TICK_S
from streamer.features.api.port import AdminPort
from streamer.features.api.readiness import summary, unready
from streamer.journal.entries import JournalError
from streamer.journal.journal import Journal, JournalState
from streamer.logs.output import write_left_out
from streamer.uprotocol.form import FORM
from streamer.uprotocol.status import UStatusError

logger = logging.getLogger("ustreamer.daemon")

_OPEN_JOURNAL_S = 30.0
_RECOVER_AGAIN_S = 0.5
_EXTENDS_EVERY_S = 1.0
_EXTENSION_US = 60_000_000  # how much longer systemd waits for the start, from each notification
_CLOSE_JOURNAL_S = 5.0
CLOSING_S = 40.0
"""How much longer than ``shutdown.drain_s`` a stop may take: what unit, container and chart allow."""

_HAND_OVER_S = 5.0
"""How long the drain takes if another streamer goes on at once: time for confirmations of what was sent."""

_DELAYED_S = 3.0  # after a tick: the next one was due within a second


class Daemon(Assembly):
    """A streamer that runs. ``path`` is the configuration file, which a reload reads again; None if there is none.

    The constructor raises `ConfigError` for options that cannot work, and `TlsError` for unusable files of the admin port.
    """

    def __init__(self, config: Config, path: Path | None = None, clock: Clock | None = None) -> None:
        self.must_restart = False
        """Whether the program has to start anew once `run` has returned: as one of a pair, on standby."""
        self._is_abrupt = False
        self._draining: asyncio.Timeout | None = None
        self._stopping = asyncio.Event()
        super().__init__(config, path, clock, self._end)
        self._admin = AdminPort(self)
        self.exposition = self._admin.exposition
        self._reloading = Reloading(self, self._admin)
        self.reload, self.read_file = self._reloading.reload, self._reloading.read_file
        self._providing: asyncio.Task[None] | None = None
        self._journal_opened = asyncio.Event()
        self._extends_s = self._watchdog_s = 0.0
        self._watchdog_interval_s = systemd.watchdog_interval_s()

    def stop(self) -> None:
        """Ask the daemon to drain and end for good. Another call has no effect."""
        self.must_restart = False
        self.router.is_draining = True
        self._stopping.set()

    def _end(self, restarts: bool, drains: bool) -> None:
        """Ask the daemon to end, as one of a pair. One that ends already goes on with that; only a drain ends at once."""
        if not self._stopping.is_set():
            self.stop()
            self.must_restart = restarts
        if not drains:
            self._is_abrupt = True
            if self._draining is not None:
                self._draining.reschedule(0)

    async def run(self) -> int:
        """Run until asked to stop; return the number of messages that could not be delivered before the end.

        Raises `ConfigError` if the transports cannot do what the routes need, OSError if the admin port is taken,
        `FileError` for a file of a newer version or another running streamer.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        reload_wanted = asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, reload_wanted.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        logger.info("starting version=%s form=%s authority=%s", __version__, FORM, self.config.authority)
        self._warn_memory_only()
        try:
            is_locked = max([feature.lock() for feature in self.features], default=False)
            if self.journal is not None and not is_locked:
                self.journal.lock()
            await self._admin.start()
            for feature in self.features:
                feature.start(self)
            if self.router.standby() is not None and not await self._stand_by(reload_wanted):
                return 0
            if self.journal is None:
                self.service_host.open()
            else:
                await self._open_journal(self.journal)
            if not self._stopping.is_set():
                await self.router.start()
                self.has_started = True
                for feature in self.features:
                    feature.started()
            gc.freeze()  # the collector need not examine thousands of restored subscriptions, which stay
            systemd.notify("READY=1", f"STATUS={summary(self.router)}")
            async with asyncio.TaskGroup() as tasks:
                ticking = tasks.create_task(self._tick(), name="tick")
                recovering = tasks.create_task(self._recover_rest(), name="recovery")
                reloading = tasks.create_task(self._reloading.reload_when(reload_wanted), name="reload")
                serving = tasks.create_task(self.service_host.run(), name="services")
                listening = tasks.create_task(self.router.listening.run(), name="listening")
                watching = tasks.create_task(self._reloading.watch_for_stalls(), name="watchdog")
                await self._stopping.wait()
                await self._reloading.end()
                reloading.cancel()
                watching.cancel()
                recovering.cancel()  # messages that are still only in the journal stay there
                left = 0 if self._is_abrupt else await self._drain_while_active()
                if self._is_abrupt:
                    await take_arrivals(self.router)
                for task in (ticking, serving, listening):
                    task.cancel()
            return left
        except UStatusError as exc:  # the transports allow fewer listeners than the routes need
            raise self.unusable([f"listeners: {exc}"]) from exc
        finally:
            await stop_all(self.transports)
            if self._is_abrupt:
                await self._stop_features()  # nobody need wait until a failing journal is closed
            self.service_host.close()
            if self.journal is not None:
                await self._close_journal(self.journal)
            await self._stop_features()
            self._admin.close()
            for feature in self.features:
                await feature.close()
            await self._admin.stop()
            self.router.settler.log.tick(is_end=True)
            write_left_out(is_end=True)
            logger.info("stopped authority=%s", self.config.authority)

    async def _stop_features(self) -> None:
        for feature in self.features:
            await feature.stop()

    async def _stand_by(self, reload_wanted: asyncio.Event) -> bool:
        """Be on standby. Return whether this one is to work now; False: the daemon has to stop."""
        systemd.notify("READY=1", f"STATUS={summary(self.router)}")
        tasks = [
            asyncio.create_task(self._reloading.reload_when(reload_wanted)),
            asyncio.create_task(self._tick_on_standby()),
        ]
        try:
            for feature in self.features:
                await feature.stand_by(self.router, self._stopping, self._provide_token)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return not self._stopping.is_set()

    def _provide_token(self) -> None:
        """Have the token made, if it is missing, in the folder of the journal, which has been opened."""
        loop = asyncio.get_running_loop()
        self._providing = loop.create_task(self._admin.provide_token(self.config), name="token")

    async def _tick_on_standby(self) -> None:
        loop, told = asyncio.get_running_loop(), unready(self.router)
        while True:
            self._tick_process(loop.time())
            if (reasons := unready(self.router)) != told:
                told = reasons
                systemd.notify(f"STATUS={summary(self.router)}")
            await asyncio.sleep(TICK_S)

    async def _open_journal(self, journal: Journal) -> None:
        """Open the journal and recover the messages of an earlier process. A file that cannot be used now is retried later.

        Ends early if the daemon is asked to stop.
        """

        def on_opened() -> None:
            self.service_host.open()
            self.router.start_recovery()
            self._journal_opened.set()
            for feature in self.features:
                feature.opened(self.service_host.state)
            self._provide_token()
            state = {"state": ("journal", "available")}
            logger.info("journal_available file=%s bytes=%d", journal.path, journal.bytes, extra=state)

        tried = journal.start(on_opened, self.router.redrive.take)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _OPEN_JOURNAL_S
        while not tried.is_set() and not self._stopping.is_set() and loop.time() < until_s:
            self._start_goes_on("opening the journal")
            await asyncio.to_thread(tried.wait, _EXTENDS_EVERY_S)
        if journal.is_newer:  # waiting would not help
            raise JournalError(journal.problem, is_newer=True)
        if journal.state is JournalState.OK:
            await self._journal_opened.wait()
            if self._providing is not None:
                await self._providing
            await self._recover(self._start_goes_on)
        elif not self._stopping.is_set():
            self.service_host.wait(journal.problem or "it takes long to open")
            logger.error(
                "journal_unavailable file=%s reason=%s consequence=%s",
                journal.path,
                journal.problem or "it takes long to open",
                "sources are acknowledged only when the destination has confirmed, until it can be used",
                extra={"state": ("journal", "unavailable")},
            )

    async def _recover(self, tell: Callable[[str], None] = lambda status: None) -> None:
        """Put messages of an earlier process into lanes, as far as that is possible now, or until the daemon has to stop."""
        gc.disable()  # up to a million messages, none of which is garbage
        try:
            with contextlib.closing(self.router.recover()) as slices:
                for _ in slices:
                    tell(self.router.recovery_progress)
                    if self._stopping.is_set():
                        consequence = "what is not in its lane yet stays in the journal"
                        logger.warning(
                            "recovery_stopped progress=%s consequence=%s", self.router.recovery_progress, consequence
                        )
                        break
                    await asyncio.sleep(0)
        finally:
            gc.enable()
            gc.freeze()  # the collector need not examine the restored messages

    async def _recover_rest(self) -> None:
        """Recover messages that could not be recovered before the start."""
        if self.journal is not None:
            await self._journal_opened.wait()
            while self.router.recovery_progress:
                await self._recover()
                await asyncio.sleep(_RECOVER_AGAIN_S)

    def _start_goes_on(self, status: str) -> None:
        """Notify systemd of the status, and have it wait longer for the start, at most every `_EXTENDS_EVERY_S`."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._extends_s:
            self._extends_s = now_s + _EXTENDS_EVERY_S
            systemd.notify(f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={_EXTENSION_US}")

    async def _close_journal(self, journal: Journal) -> None:
        """Write the messages that have no outcome, and close the file.

        Also if the other one of a pair works by now: it may not have heard what has arrived here.
        """
        if journal.state is JournalState.OK or (journal.state is JournalState.FAILING and not self._is_abrupt):
            await self._until_written()
        if not await asyncio.to_thread(journal.stop, _CLOSE_JOURNAL_S):
            logger.error("journal_not_closed file=%s reason=%s", journal.path, journal.problem or "the disk is slow")

    async def _until_written(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_JOURNAL_S):
                await self.router.custody.until_written()

    def _warn_memory_only(self) -> None:
        if self.config.journal is None:
            waits = "what waits to be delivered is acknowledged to its source and kept in memory"
            kill = "a kill of the process loses it, and dead letters cannot be listed or redriven"
            logger.warning("memory_only consequence=%s", f"{waits}: {kill}")

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self._watchdog_interval_s
        ticked_s = loop.time()
        while True:
            rest_s = self.router.rest_s()
            if not rest_s or await self.router.custody.until_flushed(min(rest_s, interval_s or rest_s)):
                asked_s = loop.time()
                await asyncio.sleep(TICK_S)
                self.exposition.lag.observe(max(0.0, loop.time() - asked_s - TICK_S))
            now_s = loop.time()
            if (late_s := now_s - ticked_s) > _DELAYED_S:
                logger.warning("tick_delayed seconds=%.1f", late_s)
                self.router.extend_waits(late_s)
            ticked_s = now_s
            self.router.tick()
            self._tick_process(now_s)

    def _tick_process(self, now_s: float) -> None:
        """Do what depends on the time, apart from the router."""
        self._admin.tick(now_s)
        write_left_out()
        for feature in self.features:
            feature.tick(now_s)
        interval_s = self._watchdog_interval_s
        if interval_s is not None and now_s - self._watchdog_s >= interval_s:
            self._watchdog_s = now_s
            systemd.notify("WATCHDOG=1")

    async def _drain_while_active(self) -> int:
        """Drain, unless the other one of a pair has taken over meanwhile: what is left is its business."""
        try:
            async with asyncio.timeout(None) as self._draining:
                return await self._drain()
        except TimeoutError:
            return 0
        finally:
            self._draining = None

    async def _drain(self) -> int:
        # One that starts anew in this process is not stopping for systemd, which would end it.
        longest_us = f"EXTEND_TIMEOUT_USEC={int((self.config.shutdown.drain_s + CLOSING_S) * 1_000_000)}"
        systemd.notify(*(() if self.must_restart else ("STOPPING=1", longest_us)), "STATUS=draining")
        drain = Drain(self.router)
        is_followed = any(feature.is_followed for feature in self.features)
        drain_s = min(self.config.shutdown.drain_s, _HAND_OVER_S) if is_followed else self.config.shutdown.drain_s
        left = await drain.run(drain_s)
        if self.journal is not None and self.journal.state is JournalState.OK:
            await self._until_written()  # before the links are closed, so that acknowledgements and receipts go out
        if self.journal is not None and (lost := await drain.give_up_unwritten()):
            left -= lost
            logger.error("not_in_journal messages=%d reason=%s", lost, self.journal.problem or "it is full")
        if left and self.journal is not None:
            at_source = len(self.router.custody.unwritten())
            text = "left_in_journal messages=%d at_source=%d drain_s=%s"
            logger.warning(text, left - at_source, at_source, drain_s)
        elif left:
            logger.error("undelivered messages=%d drain_s=%s", left, drain_s)
        else:
            logger.info("drained messages_left=%d", left)
        return left
