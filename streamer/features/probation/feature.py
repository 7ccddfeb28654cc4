"""The record of reloads on probation: a configuration that is not confirmed, or is worse, gives way to the one before it."""

import asyncio
import os
from contextlib import suppress
from functools import partial
from typing import Any

from streamer.config.load import load_text
from streamer.config.models import Config
from streamer.features.api.rates import outcomes
from streamer.features.probation import kept as files
from streamer.features.probation.judge import Measured, ProbationJudge
from streamer.features.probation.kept import KeptConfig, digest_of
from streamer.features.record import Feature, Metrics, Pages, RunningStreamer
from streamer.files import Files, read_file
from streamer.journal.moments import as_moment
from streamer.logs.audit import audit
from streamer.transports.base import LinkState
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb

_PATIENCE_S = 30.0
_LOOK_S = 1.0
_SAME_PROCESS = "USTREAMER_ON_PROBATION"  # tells a standby, which a reload starts anew, that it has not ended


class ProbationFeature(Feature):
    """``kept``: as on disk; ``result``: how the last probation of this process has ended, and why it was refused."""

    COMMANDS = ("streamer.features.probation.command",)
    kept: KeptConfig | None = None
    result = "none", ""
    _running: RunningStreamer
    _worked: Config
    _judge: ProbationJudge | None = None
    _until_s, _due_s, _late = 0.0, 0.0, ""
    _going_back: asyncio.Task[None] | None = None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._disk = Files()

    @classmethod
    def in_place_of(cls, config: Config, at_start: bool) -> str | None:
        kept = files.read(config, is_told=not at_start)
        has_ended = at_start and os.environ.get(_SAME_PROCESS, "").partition(" ")[0] != (kept and kept.digest)
        is_refused = kept is not None and kept.digest == digest_of(config.text) and (has_ended or kept.why)
        return kept.text if kept is not None and is_refused else None

    def prepare(self, config: Config) -> list[str]:
        kept = self.kept
        is_other = kept is not None and not kept.why and digest_of(config.text) not in (kept.digest, digest_of(kept.text))
        return [f"{note}: confirm it first" for note in self.notes() if is_other]

    def start(self, running: RunningStreamer) -> None:
        self._running, kept = running, files.read(self.config)
        digest, _, until_s = os.environ.pop(_SAME_PROCESS, "").partition(" ")
        if kept is not None and kept.digest == digest == digest_of(self.config.text):
            assert running.path is not None
            self.kept, self._until_s = kept, float(until_s)
            self._worked = load_text(kept.text, running.path, kind=type(self.config))
            left_s = self._until_s - asyncio.get_running_loop().time()
            self._judge = ProbationJudge(self._reading(), self._reading(), min(_PATIENCE_S, left_s / 2))
            return
        with suppress(OSError):  # the next start finds the same
            if kept is not None and self._is_on_disk(kept):
                self.kept = kept if kept.why else self._refused(kept, "the daemon has ended before it was confirmed")
            if kept is not self.kept:
                files.write(self.config, self.kept)

    async def begin(self, who: str, where: str, for_s: float) -> tuple[list[str], bool]:
        """Reload on probation. Return the problems, and whether they are of the probation and not of the file."""
        earlier, ours, before = self.kept, list[str](), self._reading()
        if earlier is not None and not earlier.why:
            return self.notes(), True
        at_ms, self._until_s = self.clock.wall_ms() + round(for_s * 1000), asyncio.get_running_loop().time() + for_s
        self._worked = worked = self._running.config

        async def keep(config: Config) -> list[str]:
            kept = KeptConfig(worked.text, digest_of(config.text), at_ms)
            same = self.notes() or ["the file is in use already"]
            ours.extend(same if config.text == worked.text else await self._save(kept))
            if self._running.router.standby() is not None and not ours:
                os.environ[_SAME_PROCESS] = f"{kept.digest} {self._until_s}"
            return ours

        if problems := await self._running.reload(who, where, keep):
            os.environ.pop(_SAME_PROCESS, None)
            await self._save(earlier)
            return problems, bool(ours)
        audit("probation_began", who=who, where=where, until=as_moment(at_ms))
        self._judge = ProbationJudge(before, self._reading(), min(_PATIENCE_S, for_s / 2))
        return [], False

    async def confirm(self, who: str, where: str) -> list[str]:
        """End the probation, or have the next reload use a refused file again. Return the problems."""
        if self.kept is None or self._going_back is not None:
            return ["no configuration is on probation"]
        if not (problems := await self._save(None)):
            self._judge, self.result = None, ("confirmed", "")
            audit("confirmed", who=who, where=where)
        return problems

    def started(self) -> None:
        if self._judge is not None:
            self._late = "it was on standby, and has taken over"

    def tick(self, now_s: float) -> None:
        if self._judge is not None and self.kept is not None and not self._going_back and now_s >= self._due_s:
            self._due_s = now_s + _LOOK_S
            late = "nobody has confirmed it in time" if now_s >= self._until_s else self._late
            if why := self.kept.why or late or self._judge.look(self._reading(), now_s):
                self._going_back = asyncio.create_task(self._go_back(self.kept, why), name="probation")

    async def reloaded(self) -> None:
        kept = self.kept
        if kept is None or self._going_back is not None:
            return
        if not await self._disk.run(partial(self._is_on_disk, kept)) if kept.why else self.config.text == kept.text:
            await self._save(None)
            self._judge, self.result = None, ("gone_back", kept.why or "the file before was read again")

    async def _go_back(self, kept: KeptConfig, why: str) -> None:
        self.kept = kept if kept.why else self._refused(kept, why)
        await self._save(self.kept)  # without it, a start finds the other one on probation, and goes back, too
        if not await self._running.reload("probation", "process", config=self._worked):
            self._judge = None
        self._going_back = None

    def _refused(self, kept: KeptConfig, why: str) -> KeptConfig:
        self.result = "gone_back", why
        audit("went_back", who="probation", where="process", why=why)
        return kept._replace(why=why, at_ms=self.clock.wall_ms())

    async def _save(self, kept: KeptConfig | None) -> list[str]:
        """Write the file. Return the problem."""
        try:
            await self._disk.run(partial(files.write, self.config, kept))
        except OSError as exc:
            return [f"the configuration in use cannot be kept beside the journal: {exc.strerror}"]
        self.kept = kept
        return []

    def _is_on_disk(self, kept: KeptConfig) -> bool:
        with suppress(OSError, ValueError):
            path = self._running.path
            return path is not None and digest_of(read_file(path).decode("utf-8-sig")) == kept.digest
        return False

    def _reading(self) -> Measured:
        router, routes = self._running.router, {"all routes": (0, 0)}
        for account in router.accounts():
            for name in (f"route {account.name}", "all routes"):
                settled, failed = routes.get(name, (0, 0))
                routes[name] = settled + account.stats.settled, failed + outcomes(account.stats)[1]
        accounts, status = router.endpoint_accounts(), pb.Status()
        links = {f"endpoint {each.name}": each.link.state for each in accounts}
        if router.standby() is not None:  # what it can do is to take over
            for feature in self._running.features:
                feature.report(status)
            links = {"the pair": LinkState.DOWN if status.pair.problem else LinkState.UP}
        return Measured(links, {each.name: each.unconfirmed_bytes for each in accounts}, routes)

    def pages(self, running: RunningStreamer) -> Pages:
        from streamer.features.probation.page import routes  # noqa: PLC0415

        return routes(running, self._shown, self.begin, self.confirm)

    def _shown(self) -> dict[str, Any]:
        state, why = self.result
        if self.kept is not None:
            state, why = "gone_back" if self.kept.why else "on_probation", self.kept.why
        links = {} if self._judge is None else {name: best.value for name, best in self._judge.links.items()}
        return {"state": state, "why": why, "notes": self.notes(), "links": links}

    def families(self) -> Metrics:
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

        text = "1 while the configuration file is not used, because it has failed its probation."
        yield GaugeMetricFamily("ustreamer_config_refused", text, self.kept is not None and self.kept.why != "")

    def notes(self) -> list[str]:
        if self.kept is None:
            return []
        refused = f"the configuration file was refused at {as_moment(self.kept.at_ms)}, the one before is in use"
        until = f"a configuration is on probation until {as_moment(self.kept.at_ms)}"
        return [f"{refused}: {self.kept.why}" if self.kept.why else until]

    def report(self, status: pb.Status) -> None:
        status.notes.extend(self.notes())
