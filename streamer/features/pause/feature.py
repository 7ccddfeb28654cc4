"""The record of pausing: the rules, the methods and pages that change them, and two commands."""

from streamer.config.models import Config
from streamer.features.host.access import Access
from streamer.features.host.service import Service
from streamer.features.pause.service import PauseService
from streamer.features.record import Feature, Pages, RunningStreamer, ServiceParts


class PauseFeature(Feature):
    """Rules that keep flows from being sent, for a while or until they are resumed."""

    COMMANDS = ("streamer.features.pause.command",)
    TABLES = PauseService.TABLES
    service: PauseService

    def serve(self, parts: ServiceParts) -> Service:
        access = Access.from_config(self.config)
        self.service = PauseService(parts.state, parts.router, self.config.control, access, self.clock)
        return self.service

    def use(self, config: Config) -> None:
        self.service.use(config.control, Access.from_config(config))

    def pages(self, running: RunningStreamer) -> Pages:
        from streamer.features.pause.page import PausePages  # noqa: PLC0415

        return PausePages(self.service).routes()
