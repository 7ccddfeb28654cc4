"""Uses the configuration file again, and builds stalled endpoints anew, one after the other.

The law of this file, the steps of a reload:
1. *Read* the file. *Judge*: does it need a restart, is it wanted?
2. *Build* the transports of new and changed endpoints, *prepare* them and the features, read and open the other files. With
   a problem up to here nothing has changed; what was opened is closed.
3. *Use*: `delivery.lifecycle.reload` has the transports listen, which may fail, too. Then settings and permissions hold at
   once, links and routes within their time. A streamer on standby starts anew instead.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from functools import partial

from streamer import systemd
from streamer.config.load import ConfigError
from streamer.config.models import Config
from streamer.config.reload import beyond_reload, rebuilt_endpoints
from streamer.config.shown import fingerprint
from streamer.daemon.assembly import Assembly, letter_bounds, served
from streamer.delivery.lifecycle.reload import Reload
from streamer.delivery.lifecycle.watchdog import Watchdog
from streamer.features.api.port import AdminPort
from streamer.features.every import load_in_use
from streamer.features.record import Judge
from streamer.files import Files
from streamer.logs.audit import audit
from streamer.logs.output import AuditThread, open_audit_log, set_up
from streamer.transports.base import UTransport
from streamer.transports.link_error import LinkFailure
from streamer.uprotocol.status import UStatusError

logger = logging.getLogger("ustreamer.daemon")

_NOT_NOW = "the daemon is starting or stopping"

_FILES_S = 30.0
"""How long a reload waits for its files to be read."""

_WATCH_S = 5.0  # between two looks for stalled endpoints


class Reloading:
    """Reloads the configuration of a streamer and its HTTP port. `end` refuses what is asked for after that."""

    def __init__(self, streamer: Assembly, admin: AdminPort) -> None:
        self._streamer = streamer
        self._admin = admin
        self._files = Files(_FILES_S)
        self._lock = asyncio.Lock()
        self._has_ended = False
        self._note_use()

    async def end(self) -> None:
        """Complete what was asked for, and refuse everything else."""
        async with self._lock:
            self._has_ended = True

    async def watch_for_stalls(self) -> None:
        """Build the transport of each endpoint anew that has stalled."""
        watchdog = Watchdog(self._streamer.router)
        while True:
            await asyncio.sleep(_WATCH_S)
            for name in watchdog.stalled(self._streamer.clock.monotonic_s()):
                async with self._lock:
                    try:
                        await self.rebuild(name)
                    except Exception:  # a bug: the daemon goes on
                        logger.exception("rebuild_failed endpoint=%s", name)

    async def rebuild(self, name: str) -> None:
        """Replace the transport of a stalled endpoint. What it had in flight is sent again."""
        if name not in self._streamer.config.endpoints or self._has_ended:
            return
        stalled, in_flight = self._streamer.router.transports[name], self._streamer.router.egresses[name].in_flight
        text = f"no progress for {stalled.stall_s:g} s, with {in_flight} messages in flight"
        logger.error("endpoint_stalled endpoint=%s problem=%s consequence=%s", name, text, "its transport is built anew")
        transports, problems = self._streamer.build(self._streamer.config, [name])
        problems += await self._files.run(partial(self._streamer.prepare, self._streamer.config, transports))
        if problems:
            logger.error("rebuild_failed endpoint=%s problem=%s", name, "; ".join(problems))
            return
        transports[name].link_failed(LinkFailure.TIMEOUT, text)
        await Reload(self._streamer.router, self._streamer.config, transports).run()

    async def reload_when(self, wanted: asyncio.Event) -> None:
        while True:
            await wanted.wait()
            wanted.clear()
            await self.reload("SIGHUP", "process")

    async def reload(self, who: str, where: str, judge: Judge | None = None, config: Config | None = None) -> list[str]:
        """Use the configuration file as it is now, or ``config``; return the problems, with which nothing changes.

        ``who`` and ``where`` are for the audit log. ``judge`` returns why a configuration that could be used is not wanted.
        """
        async with self._lock:
            try:
                found = config if config is not None and not self._has_ended else await self.read_file()
                problems = await self._reload(judge, found)
            except Exception as exc:  # a bug: the daemon goes on
                logger.exception("reload_failed")
                problems = [f"the reload failed: {type(exc).__name__}; the log has its traceback"]
        self._admin.exposition.count_reload("refused" if problems else "ok")
        for problem in problems:
            logger.error("reload_refused problem=%s", problem)
        if not problems:
            self._note_use()
            audit("reloaded", who=who, where=where, file=str(self._streamer.path), routes=len(self._streamer.config.routes))
        return problems

    async def read_file(self) -> Config | list[str]:
        """Return the configuration file as it is now, which is not used, or its problems."""
        if self._streamer.path is None:
            return ["this daemon was not started from a file"]
        if not (self._streamer.has_started or self._streamer.router.standby() is not None) or self._has_ended:
            return [_NOT_NOW]
        try:
            return await self._files.run(partial(load_in_use, self._streamer.path, False, type(self._streamer.config)))
        except ConfigError as exc:
            return [str(problem) for problem in exc.problems]
        except OSError as exc:
            return [f"{self._streamer.path}: {exc.strerror}"]

    async def _reload(self, judge: Judge | None, config: Config | list[str]) -> list[str]:
        if isinstance(config, list):
            return config
        if problems := beyond_reload(self._streamer.config, config):
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
        streamer = self._streamer
        transports, problems = streamer.build(config, rebuilt_endpoints(streamer.config, config))
        with contextlib.ExitStack() as unused:  # closed unless it is used
            try:
                audit_file, wrong = await self._files.run(partial(self._files_of, config, transports))
            except OSError as exc:
                return [*problems, f"files: {exc.strerror}"]
            if audit_file is not None:
                unused.callback(audit_file.close)
            if problems := problems + wrong:
                return problems
            if streamer.router.standby() is not None:
                streamer.config = config
                streamer.end(True, False)
                return []
            if not streamer.has_started:
                return [_NOT_NOW]

            def allow() -> None:
                """Apply the settings of services, administration and logs at once, however long the rest takes."""
                streamer.service_host.use(config)
                self._admin.use(config)
                if config.log != streamer.config.log:
                    set_up(config.log.level, config.log.format, config.log.repeat_s, audit_file)
                    unused.pop_all()
                if streamer.journal is not None:
                    streamer.journal.use(letter_bounds(config, streamer.journal.max_bytes))

            try:
                await Reload(streamer.router, config, transports, allow).run()
            except UStatusError as exc:  # the router still has what it had
                return [f"listeners: {exc}"]
        streamer.config = config
        for name in config.endpoints.keys() - transports.keys():
            streamer.transports[name].set_served(served(config, name))
        for feature in streamer.features:
            await feature.reloaded()
        return []

    def _files_of(self, config: Config, transports: Mapping[str, UTransport]) -> tuple[AuditThread | None, list[str]]:
        """Read and open the files of a reload, which may hang; return the audit log, and the problems."""
        problems = self._streamer.prepare(config, transports) + self._admin.prepare(config)
        try:
            return open_audit_log(config.log.audit), problems
        except OSError as exc:
            return None, [*problems, f"log.audit: {config.log.audit}: {exc.strerror or type(exc).__name__}"]

    def _note_use(self) -> None:
        streamer = self._streamer
        self._admin.exposition.config_used(fingerprint(streamer.config), streamer.clock.wall_ms() / 1000)
