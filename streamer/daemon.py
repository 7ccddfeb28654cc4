"""The daemon: builds transports and router from a configuration, ticks, reloads, drains and stops."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from streamer import __version__, systemd
from streamer.clock import Clock, SystemClock
from streamer.config.load import ConfigError, Problem, load
from streamer.config.models import Config
from streamer.config.reload import beyond_reload, rebuilt_endpoints
from streamer.config.shown import fingerprint
from streamer.delivery.inbound.transport_events import CountingEvents
from streamer.delivery.lifecycle.departure import Drain, stop_all, take_arrivals
from streamer.delivery.lifecycle.reload import Reload
from streamer.delivery.lifecycle.watchdog import Watchdog
from streamer.delivery.router import TICK_S, Router
from streamer.features.api.port import AdminPort, PortFiles
from streamer.features.api.readiness import summary, unready
from streamer.features.api.status_message import StatusView
from streamer.features.every import built
from streamer.features.host.host import ServiceHost, entities, state_file
from streamer.features.record import Feature, Judge, StreamerParts, additions_of, first
from streamer.files import Files
from streamer.journal.batches import LetterBounds
from streamer.journal.entries import JournalError
from streamer.journal.journal import Journal, JournalState
from streamer.logs.audit import audit
from streamer.logs.output import AuditThread, open_audit_log, set_up, write_left_out
from streamer.transports.base import LinkState, TransportContext, UTransport
from streamer.transports.errors import ConfigurationError
from streamer.transports.installed import load_transport
from streamer.transports.link_error import LinkFailure
from streamer.transports.local import LocalTransport
from streamer.transports.own_nodes import OwnNodes
from streamer.uprotocol.form import FORM
from streamer.uprotocol.status import UStatusError
from streamer.uprotocol.uri import ANY_AUTHORITY
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

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

_NOT_NOW = "the daemon is starting or stopping"

_FILES_S = 30.0
"""How long a reload waits for its files to be read."""

_WATCH_S = 5.0  # between two looks for stalled endpoints
_DELAYED_S = 3.0  # after a tick: the next one was due within a second


class Daemon:
    """One streamer. ``path`` is the configuration file, which a reload reads again; None if there is none.

    The constructor raises `ConfigError` for options that cannot work, and `TlsError` for unusable files of the admin port.
    """

    def __init__(self, config: Config, path: Path | None = None, clock: Clock | None = None) -> None:
        self.config = config
        self._path = path
        self._clock = clock or SystemClock()
        self.started_ms, self.started_s = self._clock.wall_ms(), self._clock.monotonic_s()
        self.router: Router
        self.features: Sequence[Feature] = built(config, self._clock)
        self._own_nodes = OwnNodes(first(feature.nodes_key for feature in self.features), config.authority)
        self.transports, problems = self._built(config, config.endpoints)
        problems += self._unprepared(config, self.transports)
        if problems:
            raise self._unusable(problems)
        local_transport = LocalTransport(self._context(config, LOCAL_ENDPOINT), entities(config, self.features))
        self.transports[LOCAL_ENDPOINT] = local_transport
        state = partial(state_file, config, self.features)
        parts = StreamerParts(self.transports, partial(_journal, config), state, self._end)
        self.journal = first([feature.join(parts) for feature in self.features])
        if self.journal is None and config.journal is not None:
            self.journal = _journal(config, Journal)
        self.must_restart = False
        """Whether the program has to start anew once `run` has returned: as one of a pair, on standby."""
        self._is_abrupt = False
        self._draining: asyncio.Timeout | None = None
        additions = additions_of(self.features)
        self.router = Router(config, self.transports, self._clock, journal=self.journal, additions=additions)
        self.service_host = ServiceHost(
            config,
            local_transport,
            self.router,
            self._clock,
            self.features,
            StatusView(self),
            first(feature.mirror for feature in self.features),
        )
        self._admin = AdminPort(self)
        self.exposition = self._admin.exposition
        self.exposition.config_used(fingerprint(config), self._clock.wall_ms() / 1000)
        self._files = Files(_FILES_S)
        self._providing: asyncio.Task[None] | None = None
        self._reload_lock = asyncio.Lock()
        self._has_started = False
        self._is_ending = False  # and refuses reloads
        self._stopping = asyncio.Event()
        self._journal_opened = asyncio.Event()
        self._extends_s = self._watchdog_s = 0.0
        self._watchdog_interval_s = systemd.watchdog_interval_s()

    def _built(self, config: Config, names: Iterable[str]) -> tuple[dict[str, UTransport], list[str]]:
        """Build the transports of endpoints, not prepared yet; return them by endpoint, and the problems of the others."""
        transports: dict[str, UTransport] = {}

        def build(name: str) -> None:
            endpoint = config.endpoints[name]
            transports[name] = load_transport(endpoint.transport)(self._context(config, name), endpoint.options)
            for feature in self.features:
                feature.built(transports[name])

        return transports, [problem for name in names if (problem := _tried(name, partial(build, name)))]

    def _unprepared(self, config: Config, transports: Mapping[str, UTransport]) -> list[str]:
        """Prepare transports and features for a configuration; return the problems. This reads files, which may hang."""
        found = [problem for name, each in transports.items() if (problem := _tried(name, each.prepare))]
        return [*found, *(problem for feature in self.features for problem in feature.prepare(config))]

    def _unusable(self, problems: list[str]) -> ConfigError:
        return ConfigError([Problem(str(self._path or "the configuration"), 0, 0, "", text) for text in problems])

    def _context(self, config: Config, name: str) -> TransportContext:
        return TransportContext(
            name,
            config.authority,
            serves=_served(config, name),
            events=_EndpointEvents(self, name),
            now_ms=self._clock.wall_ms,
            own_nodes=self._own_nodes,
        )

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
            self.service_host.open()
            if self.journal is not None:
                await self._open_journal(self.journal)
            if not self._stopping.is_set():
                await self.router.start()
                self._has_started = True
                for feature in self.features:
                    feature.started()
            gc.freeze()  # the collector need not examine thousands of restored subscriptions, which stay
            systemd.notify("READY=1", f"STATUS={summary(self.router)}")
            async with asyncio.TaskGroup() as tasks:
                ticking = tasks.create_task(self._tick(), name="tick")
                recovering = tasks.create_task(self._recover_rest(), name="recovery")
                reloading = tasks.create_task(self._reload_when(reload_wanted), name="reload")
                serving = tasks.create_task(self.service_host.run(), name="services")
                listening = tasks.create_task(self.router.listening.run(), name="listening")
                watching = tasks.create_task(self._watch_for_stalls(), name="watchdog")
                await self._stopping.wait()
                async with self._reload_lock:  # a reload that was asked for before is completed
                    self._is_ending = True
                    reloading.cancel()
                    watching.cancel()
                recovering.cancel()  # messages that are still only in the journal stay there
                left = 0 if self._is_abrupt else await self._drain_while_active()
                if self._is_abrupt:
                    take_arrivals(self.router)
                for task in (ticking, serving, listening):
                    task.cancel()
            return left
        except UStatusError as exc:  # the transports allow fewer listeners than the routes need
            raise self._unusable([f"listeners: {exc}"]) from exc
        finally:
            await stop_all(self.transports)
            if self._is_abrupt:
                await self._stop_features()  # nobody need wait until a failing journal is closed
            if self.journal is not None:
                await self._close_journal(self.journal)
            await self._stop_features()
            await asyncio.to_thread(self.service_host.close)
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
        tasks = [asyncio.create_task(self._reload_when(reload_wanted)), asyncio.create_task(self._tick_on_standby())]
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

    async def _watch_for_stalls(self) -> None:
        """Build the transport of each endpoint anew that has stalled."""
        watchdog = Watchdog(self.router)
        while True:
            await asyncio.sleep(_WATCH_S)
            for name in watchdog.stalled(self._clock.monotonic_s()):
                async with self._reload_lock:
                    try:
                        await self._rebuild(name)
                    except Exception:  # a bug: the daemon goes on
                        logger.exception("rebuild_failed endpoint=%s", name)

    async def _rebuild(self, name: str) -> None:
        """Replace the transport of a stalled endpoint. What it had in flight is sent again."""
        if name not in self.config.endpoints or self._is_ending:
            return
        stalled, in_flight = self.router.transports[name], self.router.egresses[name].in_flight
        text = f"no progress for {stalled.stall_s:g} s, with {in_flight} messages in flight"
        logger.error("endpoint_stalled endpoint=%s problem=%s consequence=%s", name, text, "its transport is built anew")
        transports, problems = self._built(self.config, [name])
        problems += await self._files.run(partial(self._unprepared, self.config, transports))
        if problems:
            logger.error("rebuild_failed endpoint=%s problem=%s", name, "; ".join(problems))
            return
        transports[name].link_failed(LinkFailure.TIMEOUT, text)
        await Reload(self.router, self.config, transports).run()

    async def _reload_when(self, wanted: asyncio.Event) -> None:
        while True:
            await wanted.wait()
            wanted.clear()
            await self.reload("SIGHUP", "process")

    async def reload(self, who: str, where: str, judge: Judge | None = None) -> list[str]:
        """Use the configuration file as it is now; return the problems, with which nothing changes.

        ``who`` and ``where`` are for the audit log. ``judge`` returns why a configuration that could be used is not wanted.
        """
        async with self._reload_lock:
            try:
                problems = await self._reload(judge)
            except Exception as exc:  # a bug: the daemon goes on
                logger.exception("reload_failed")
                problems = [f"the reload failed: {type(exc).__name__}; the log has its traceback"]
        self.exposition.count_reload("refused" if problems else "ok")
        for problem in problems:
            logger.error("reload_refused problem=%s", problem)
        if not problems:
            self.exposition.config_used(fingerprint(self.config), self._clock.wall_ms() / 1000)
            audit("reloaded", who=who, where=where, file=str(self._path), routes=len(self.config.routes))
        return problems

    async def read_file(self) -> Config | list[str]:
        """Return the configuration file as it is now, which is not used, or its problems."""
        if self._path is None:
            return ["this daemon was not started from a file"]
        if not (self._has_started or self.router.standby() is not None) or self._is_ending:
            return [_NOT_NOW]
        try:
            return await self._files.run(partial(load, self._path, may_wait=False))
        except ConfigError as exc:
            return [str(problem) for problem in exc.problems]
        except OSError as exc:
            return [f"{self._path}: {exc.strerror}"]

    async def _reload(self, judge: Judge | None) -> list[str]:
        config = await self.read_file()
        if isinstance(config, list):
            return config
        if problems := beyond_reload(self.config, config):
            return problems
        if judge is not None and (problems := await judge(config)):
            return problems
        systemd.notify("RELOADING=1")
        try:
            return await self._use(config)
        finally:
            systemd.notify("READY=1")

    async def _use(self, config: Config) -> list[str]:
        """Use another configuration, which needs no restart; return its problems, with which nothing changes.

        On standby, it starts anew with that one.
        """
        transports, problems = self._built(config, rebuilt_endpoints(self.config, config))
        with contextlib.ExitStack() as unused:  # closed unless it is used
            try:
                files = await self._files.run(partial(self._files_of, config, transports))
            except OSError as exc:
                return [*problems, f"files: {exc.strerror}"]
            if files.audit is not None:
                unused.callback(files.audit.close)
            if problems := problems + files.problems:
                return problems
            if self.router.standby() is not None:
                self.config = config
                self._end(restarts=True, drains=False)
                return []
            if not self._has_started:
                return [_NOT_NOW]

            def allow() -> None:
                """Apply the settings of services, administration and logs at once, however long the rest takes."""
                self.service_host.use(config)
                self._admin.use(config, files.port)
                if config.log != self.config.log:
                    set_up(config.log.level, config.log.format, config.log.repeat_s, files.audit)
                    unused.pop_all()
                if self.journal is not None:
                    self.journal.use(_letter_bounds(config, self.journal.max_bytes))

            try:
                await Reload(self.router, config, transports, allow).run()
            except UStatusError as exc:  # the router still has what it had
                return [f"listeners: {exc}"]
        self.config = config
        for name in config.endpoints.keys() - transports.keys():
            self.transports[name].set_served(_served(config, name))
        for feature in self.features:
            await feature.reloaded()
        return []

    def _files_of(self, config: Config, transports: Mapping[str, UTransport]) -> "_ReloadFiles":
        """Read and open the files of a reload, which may hang."""
        problems = self._unprepared(config, transports)
        port, wrong = self._admin.prepare(config)
        audit_file: AuditThread | None = None
        try:
            audit_file = open_audit_log(config.log.audit)
        except OSError as exc:
            problems.append(f"log.audit: {config.log.audit}: {exc.strerror or type(exc).__name__}")
        return _ReloadFiles(port, audit_file, problems + wrong)

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


class _EndpointEvents(CountingEvents):
    """Passes the events of one endpoint's transport to the router, and counts and logs them."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        # The daemon builds its router after its transports.
        super().__init__(name, lambda name: daemon.router.ingresses.get(name), lambda: daemon.router.settler.log)
        self._daemon = daemon

    def state_changed(self, state: LinkState, reason: str = "") -> None:
        router = self._daemon.router
        extra = {"state": (f"endpoint {self._name}", state)}
        logger.info("endpoint_state endpoint=%s state=%s", self._name, state.value, extra=extra)
        router.link_changed(self._name, state)
        for feature in self._daemon.features:
            feature.link_changed(self._name, state, reason)
        self._daemon.service_host.status.health_changed()
        systemd.notify(f"STATUS={summary(router)}")

    def node_changed(self, is_there: bool) -> None:
        self._daemon.router.node_changed(self._name, is_there)


class _ReloadFiles(NamedTuple):
    """The files that a reload has read and opened before it is accepted, and the problems with them."""

    port: PortFiles
    audit: AuditThread | None
    problems: list[str]


def _tried(name: str, work: Callable[[], None]) -> str:
    """Call ``work`` on the transport of an endpoint; return its problem, empty if there is none."""
    try:
        work()
    except ConfigurationError as exc:
        return f"endpoints.{name}.options.{exc.key}: {exc}"
    except Exception as exc:  # a bug in a plugin
        logger.exception("prepare_failed endpoint=%s", name)
        return f"endpoints.{name}: its transport failed: {type(exc).__name__}"
    return ""


def _journal(config: Config, kind: type[Journal]) -> Journal:
    """Return the journal, not open yet."""
    assert config.journal is not None
    bounds = _letter_bounds(config, config.journal.max_bytes)
    return kind(config.journal.path, config.journal.max_bytes, bounds, asyncio.get_running_loop().call_soon_threadsafe)


def _letter_bounds(config: Config, max_bytes: int) -> LetterBounds:
    return LetterBounds(*config.dead_letter.store.bounds(max_bytes))


def _served(config: Config, endpoint: str) -> tuple[str, ...]:
    """Return the authorities that are reached through this streamer from an endpoint."""
    targets = dict.fromkeys(route.to for route in config.routes if route.from_ == endpoint)
    found = (authority for target in targets for authority in config.endpoints[target].authorities)
    return tuple(dict.fromkeys(authority for authority in found if authority != ANY_AUTHORITY))
