"""A transport that answers submitted messages when the test says so."""

from collections.abc import Callable, Sequence

from streamer.transports.base import Done, LinkState, Parcel, SendResult, TransportContext
from streamer.transports.errors import LinkLostError, SendError
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.uprotocol.message import UMessage


class FakeTransport(MemoryTransport):
    """Confirms at once, or when told, in any pieces. ``batches`` is every batch as it was submitted.

    ``fail_at`` raises half way through a batch, after so many of its parcels were taken.
    """

    def __init__(self, confirms_at_once: bool = True) -> None:
        super().__init__(TransportContext("cloud", "gateway"), MemoryOptions())
        self.confirms_at_once = confirms_at_once
        self.batches: list[list[UMessage]] = []
        self.unanswered: list[tuple[Parcel, Done]] = []
        self.verdict: Callable[[UMessage], SendError | None] = lambda message: None
        self.fail_at: int | None = None
        self.state = LinkState.UP

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        self.batches.append([parcel.message for parcel in parcels])
        for number, parcel in enumerate(parcels):
            if number == self.fail_at:
                self.fail_at = None
                raise ZeroDivisionError("the plugin has a fault")
            if self.confirms_at_once:
                done((parcel,), self.verdict(parcel.message))
            else:
                self.unanswered.append((parcel, done))

    def answer(self, *positions: int, error: SendResult = None) -> None:
        """Answer the unanswered parcels at these positions with one call, in that order; all of them if none is named."""
        chosen = [self.unanswered[position] for position in positions or range(len(self.unanswered))]
        self.unanswered = [entry for entry in self.unanswered if entry not in chosen]
        chosen[0][1]([parcel for parcel, _ in chosen], error)

    def lose(self) -> None:
        """Lose the link: return all unanswered parcels, in order."""
        self.set_state(LinkState.DOWN)
        if self.unanswered:
            self.answer(error=LinkLostError())

    @property
    def submitted(self) -> list[UMessage]:
        """Everything submitted, in order."""
        return [message for batch in self.batches for message in batch]
