"""Hands messages that only the standby has back to the active streamer, which takes them as if they arrived.

There are some after a split, when a standby comes back that was active before, and when the active streamer has lost them.
Dead letters, and notices about them, stay on the standby, which has them again when it is active.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from streamer.features.pair.disk import EVERYTHING, Disk
from streamer.journal import codec
from streamer.journal.entries import Batch, CorruptEntryError, JournalError
from streamer.journal.journal import Journal
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import pair_v1_pb2 as pb

_WINDOW_MESSAGES = 512
_WINDOW_BYTES = 1 << 20
_PART_MESSAGES = 64

logger = logging.getLogger("ustreamer.pair")


class _Entry(NamedTuple):
    """A row or a segment of the journal."""

    kind: str
    number: int


class _Waiting(NamedTuple):
    entry: _Entry
    source: str
    body: bytes


class Offers:
    """The hand-back of a standby: offers its own entries, and deletes each once all of its messages are taken.

    ``disk`` says which entries the active streamer need not have. ``say`` sends a frame, and returns whether it has a link;
    ``delete`` deletes entries. ``refused`` counts messages that the active streamer cannot take: they stay in this journal,
    and are offered again after the next snapshot.
    """

    def __init__(
        self, journal: Journal, disk: Disk, say: Callable[[pb.Frame], bool], delete: Callable[[Batch], None]
    ) -> None:
        self._journal = journal
        self.refused = 0
        self._disk = disk
        self._say = say
        self._delete = delete
        self._left: Iterator[_Waiting] = iter(())
        self._open: dict[int, tuple[_Entry, int]] = {}
        self._messages_of: Counter[_Entry] = Counter()  # how many of its messages are not taken
        self._bytes = 0
        self._token = 0

    def begin(self) -> None:
        """Offer every own entry, from the beginning."""
        self._open.clear()
        self._messages_of.clear()
        self._bytes = self.refused = 0
        self._left = self._messages()
        self.go_on()

    def end(self) -> None:
        """Offer nothing more, because the link is gone."""
        self._left = iter(())
        self._open.clear()
        self._bytes = 0

    def go_on(self) -> None:
        """Offer further messages, as many as may be unanswered at a time."""
        offer = pb.Offer()
        while len(self._open) < _WINDOW_MESSAGES and self._bytes < _WINDOW_BYTES:
            try:
                waiting = next(self._left, None)
            except (JournalError, CorruptEntryError) as exc:  # the rest is offered after the next copy
                logger.error("pair_offer_interrupted reason=%s", exc)
                break
            if waiting is None:
                break
            self._token += 1
            self._open[self._token] = waiting.entry, len(waiting.body)
            self._bytes += len(waiting.body)
            offer.messages.add(token=self._token, source=waiting.source, body=waiting.body)
            if len(offer.messages) >= _PART_MESSAGES:
                self._say(pb.Frame(offer=offer))
                offer = pb.Offer()
        if offer.messages:
            self._say(pb.Frame(offer=offer))

    def took(self, tokens: pb.Taken) -> None:
        """Note the messages that the active streamer has taken, and those that it cannot take."""
        gone = Batch()
        for token in tokens.refused:
            if (found := self._open.pop(token, None)) is not None:
                self._bytes -= found[1]  # its entry is never complete, so it stays
                self.refused += 1
        for token in tokens.tokens:
            found = self._open.pop(token, None)
            if found is None:
                continue
            entry, size = found
            self._bytes -= size
            self._messages_of[entry] -= 1
            if not self._messages_of[entry]:
                del self._messages_of[entry]
                getattr(gone, f"{entry.kind}_done").append(entry.number)
        if not gone.is_empty:
            self._delete(gone)
        self.go_on()

    def _messages(self) -> Iterator[_Waiting]:
        first = self._disk.given.below
        if first >= EVERYTHING:
            return
        for row in self._journal.rows(everything=True, first=first):
            if self._disk.is_own(row.number) and row.source:
                entry = _Entry("rows", row.number)
                self._messages_of[entry] = 1
                yield _Waiting(entry, row.source, row.body)
        for segment in self._journal.segments(everything=True, first=first):
            if not self._disk.is_own(segment.number):
                continue
            entry = _Entry("segments", segment.number)
            try:
                flows, start = codec.unpack_flows(segment.body)
                records = list(codec.unpack_records(segment.body, start))
            except (codec.UnreadableError, CorruptEntryError) as exc:
                logger.error("batch_unreadable endpoint=%s number=%d error=%s", segment.target, segment.number, exc)
                continue
            records = [record for record in records if flows[record.flow].source]
            if not records:
                continue
            self._messages_of[entry] = len(records)
            for record in records:
                flow = flows[record.flow]
                message = UMessage(record.id, flow.attributes, record.payload)
                yield _Waiting(entry, flow.source, codec.pack(message))


class Offered(Received):
    """A message that the standby hands back; ``on_safe`` is called once it is safe here."""

    source_retransmits = True

    __slots__ = ("_on_safe",)

    def __init__(self, message: UMessage, on_safe: Callable[[], None]) -> None:
        super().__init__(message, redelivered=True)
        self._on_safe = on_safe

    def acknowledge(self) -> None:
        self._on_safe()


class Adoption:
    """The adoption by the active streamer: gives offered messages to ``adopt``, with their endpoint, in order.

    `take` returns the token of a message once that is safe, or cannot be taken: it is unreadable, or ``adopt`` returns False
    because there is no such endpoint.
    """

    def __init__(self, adopt: Callable[[str, list[Received]], bool]) -> None:
        self._adopt = adopt
        self._taken: list[int] = []
        self._refused: list[int] = []

    def take(self) -> pb.Taken | None:
        """Return the tokens of the messages that are safe, or refused, since the last call; None if there are none."""
        if not (self._taken or self._refused):
            return None
        taken = pb.Taken(tokens=self._taken, refused=self._refused)
        self._taken, self._refused = [], []
        return taken

    def offered(self, offer: pb.Offer) -> None:
        """Adopt the messages of an offer."""
        by_source: dict[str, list[Received]] = {}
        tokens: dict[str, list[int]] = {}
        for each in offer.messages:
            try:
                message = codec.unpack(each.body)
            except codec.UnreadableError as exc:
                logger.error("pair_offer_unreadable endpoint=%s error=%s", each.source, exc)
                self._refused.append(each.token)
                continue
            safe = self._safe(each.token)
            tokens.setdefault(each.source, []).append(each.token)
            by_source.setdefault(each.source, []).append(Offered(message, safe))
        for source, batch in by_source.items():
            if not self._adopt(source, batch):
                self._refused += tokens[source]
                text = "pair_offer_refused endpoint=%s messages=%d consequence=%s"
                logger.error(text, source, len(batch), "there is no such endpoint; they wait in the other one's journal")

    def _safe(self, token: int) -> Callable[[], None]:
        return lambda: self._taken.append(token)
