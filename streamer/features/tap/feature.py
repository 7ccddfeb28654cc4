"""The record of the tap: a page that streams messages with their outcomes, and a command that prints them."""

from typing import TYPE_CHECKING

from streamer.features.record import Feature, Pages, RunningStreamer

if TYPE_CHECKING:
    from streamer.features.api.streams import Streams


class TapFeature(Feature):
    """The streams of those who watch. Nobody watches: it costs nothing."""

    COMMANDS = ("streamer.features.tap.command",)
    _streams: "Streams | None" = None

    def pages(self, running: RunningStreamer) -> Pages:
        from streamer.features.api.streams import Streams  # noqa: PLC0415
        from streamer.features.tap.page import MAX_TAPS, TapPages  # noqa: PLC0415

        self._streams = Streams("taps", MAX_TAPS, 0)
        return TapPages(running.router, self._streams).routes()

    async def stop(self) -> None:
        if self._streams is not None:
            self._streams.close()
