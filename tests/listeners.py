"""A listener that keeps what it receives."""

from collections.abc import Sequence

from streamer.transports.base import Received, UListener
from streamer.uprotocol.message import UMessage


class RecordingListener(UListener):
    """Releases what it receives at once, or with ``releases=False`` never. ``batches`` has what came together."""

    def __init__(self, releases: bool = True) -> None:
        self.releases = releases
        self.batches: list[list[Received]] = []
        self.received: list[Received] = []

    def on_receive_batch(self, batch: Sequence[Received]) -> None:
        self.batches.append(list(batch))
        self.received += batch
        if self.releases:
            for received in batch:
                received.release()

    @property
    def messages(self) -> list[UMessage]:
        return [received.message for received in self.received]

    @property
    def payloads(self) -> list[bytes | None]:
        return [message.payload for message in self.messages]

    def clear(self) -> None:
        self.batches.clear()
        self.received.clear()
