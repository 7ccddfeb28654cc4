"""The record of the pair: the streamer works with a lease only, and its journal is copied."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamer.config.models import Config
from streamer.delivery.router import Additions, Router
from streamer.features.host.state import Mirror, StateFile
from streamer.features.pair.config import PairConfig, pair_fingerprint
from streamer.features.record import Feature, Metrics, Pages, RunningStreamer, StreamerParts
from streamer.journal.journal import Journal
from streamer.transports.base import UTransport
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb

if TYPE_CHECKING:
    from streamer.features.pair.paired import Paired

_TEXT = 200  # most characters of a text in the status


class PairFeature(Feature):
    """The streamer's part in its pair, if one is configured. ``paired`` None: the streamer works alone."""

    COMMANDS = ("streamer.features.pair.command",)
    KEYS = {"pair": PairConfig}
    paired: "Paired | None" = None

    @property
    def additions(self) -> Additions:
        return Additions() if self.paired is None else self.paired.additions

    @property
    def nodes_key(self) -> bytes | None:
        options = self.config.section(PairConfig)
        return None if options is None else options.key()

    @property
    def mirror(self) -> Mirror | None:
        return None if self.paired is None else self.paired.member.state

    @property
    def is_followed(self) -> bool:
        return self.paired is not None and not self.paired.member.why_not_hand_over()

    def join(self, parts: StreamerParts) -> Journal | None:
        if self.config.section(PairConfig) is None:
            return None
        from streamer.features.pair.mirror import MirroredJournal  # noqa: PLC0415  # other streamers do without
        from streamer.features.pair.paired import Paired  # noqa: PLC0415

        journal, copy = parts.make_journal(MirroredJournal), parts.make_journal(Journal)
        assert isinstance(journal, MirroredJournal)
        self.paired = Paired(self.config, self.clock, parts.transports, copy, journal, parts.end)
        return journal

    def lock(self) -> bool:
        if self.paired is None:
            return False
        self.paired.lock()
        return True

    def built(self, transport: UTransport) -> None:
        if self.paired is not None and transport.shared is not None:
            transport.shared.listen(self.paired.member.hear_aside)

    async def stand_by(self, router: Router, stopping: asyncio.Event, on_opened: Callable[[], None]) -> None:
        if self.paired is not None:
            await self.paired.stand_by(router, stopping, on_opened)

    def opened(self, state: StateFile) -> None:
        if self.paired is not None:
            self.paired.work(state)

    def started(self) -> None:
        if self.paired is not None:
            self.paired.take_over()

    async def stop(self) -> None:
        if self.paired is not None:
            await self.paired.stop()

    def use(self, config: Config) -> None:
        if self.paired is not None:
            self.paired.member.configured(pair_fingerprint(config))

    def pages(self, running: RunningStreamer) -> Pages:
        from streamer.features.pair.page import PairPages  # noqa: PLC0415

        return PairPages(self.paired, running.router).routes()

    def families(self) -> Metrics:
        from streamer.features.pair.page import families  # noqa: PLC0415

        return () if self.paired is None else families(self.paired)

    def state(self) -> dict[str, Any]:
        from streamer.features.pair.page import as_json  # noqa: PLC0415

        return {"pair": None if self.paired is None else as_json(self.paired.view)}

    def report(self, status: pb.Status) -> None:
        if self.paired is not None:
            view = self.paired.view
            problem = view.problem[:_TEXT]
            status.pair.CopyFrom(pb.PairStatus(epoch=view.epoch, protected=view.is_protected, problem=problem))

    def notes(self) -> list[str]:
        return [] if self.paired is None else self.paired.view.notes
