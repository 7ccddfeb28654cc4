"""Records sent messages that wait for a receipt of another streamer. Pure, time is passed in.

A message is *receipted* if a live streamer serves its sink's authority. It has no result until such a streamer gives its
receipt, or until it has waited too long: then it has the result that it would have without receipts, and no message waits
for that streamer until it gives a receipt again. Flows keep their order: an early receipt waits for those of earlier
messages, and if a message is lost, all messages that were submitted after it in the same flow are lost, too.

An authority that a streamer has served is *away* from when it does so no longer until one serves it again: whoever else has
subscribed to its messages is not its receiver. A streamer that is there may have given it up (`give_up`).
"""

from collections import deque
from collections.abc import Sequence

from streamer.transports.base import Done, Parcel, SendResult
from streamer.transports.errors import LinkLostError, SendError
from streamer.transports.results import ResultRuns
from streamer.transports.zenoh.receipt_proofs import Streamer
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri

_Flow = tuple[UUri, UUri]


class _Entry:
    """One receipted message.

    ``put_s`` is when Zenoh took the message, ``result`` its result without a receipt; ``is_lost``: it was lost before that.
    The message waits for a receipt of ``streamer`` (if any) while ``waits`` is True.
    """

    __slots__ = ("done", "flow", "has_receipt", "is_lost", "parcel", "put_s", "result", "streamer", "waits")

    def __init__(self, parcel: Parcel, done: Done, flow: _Flow, streamer: Streamer | None) -> None:
        self.parcel = parcel
        self.done = done
        self.flow = flow
        self.streamer = streamer
        self.put_s: float | None = None
        self.result: SendResult = None
        self.waits = streamer is not None
        self.has_receipt = False
        self.is_lost = False


class ReceiptLedger:
    """Waiting messages by id and by flow, and the streamers that serve their sinks."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._streamers: dict[str, list[Streamer]] = {}  # by the authority that they serve
        self._away: dict[str, str] = {}  # authorities, with the name of the streamer that has served each
        self._silent: set[Streamer] = set()  # streamers that have not given a receipt in time
        self._entries: dict[bytes, _Entry] = {}
        self._flows: dict[_Flow, deque[_Entry]] = {}

    @property
    def is_needed(self) -> bool:
        """Whether new messages may have to wait for a receipt, or some still wait."""
        return bool(self._streamers or self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    # -- streamers

    def add_streamer(self, streamer: Streamer, authority: str) -> None:
        """Add a streamer that serves an authority."""
        self._away.pop(authority, None)
        streamers = self._streamers.setdefault(authority, [])
        if streamer not in streamers:
            streamers.append(streamer)

    @property
    def away(self) -> frozenset[str]:
        """The authorities whose streamer is away."""
        return frozenset(self._away)

    def awaits(self, name: str) -> bool:
        """Return whether any authority is away that a streamer has served."""
        return name in self._away.values()

    def give_up(self, name: str) -> None:
        """Count no authority as away that a streamer has served and, although it is there, does not serve any more."""
        self._away = {authority: other for authority, other in self._away.items() if other != name}

    def remove_streamer(self, streamer: Streamer, authority: str) -> None:
        """Remove a streamer that no longer serves an authority. Messages without its receipt are lost."""
        streamers = self._streamers.get(authority, [])
        if streamer not in streamers:
            return
        streamers.remove(streamer)
        if not streamers:
            del self._streamers[authority]
            self._away[authority] = streamer.authority
        if not self.is_known(streamer):
            self._silent.discard(streamer)
        lost = {
            entry.flow
            for entry in self._entries.values()
            if entry.streamer == streamer and entry.flow[1].authority == authority
        }
        for flow in lost:
            self._lose(flow)

    def is_known(self, streamer: Streamer) -> bool:
        """Return whether a streamer serves any authority."""
        return any(streamer in streamers for streamers in self._streamers.values())

    # -- messages

    def expect(self, parcels: Sequence[Parcel], done: Done) -> bool:
        """Record messages before they are put. Return whether any of them is receipted."""
        found = False
        for parcel in parcels:
            message: UMessage = parcel.message
            sink = message.attributes.sink
            if sink is None or message.id in self._entries:
                continue
            streamer = self._awaited(sink.authority)
            flow = (message.attributes.source, sink)
            entries = self._flows.get(flow)
            if streamer is not None or entries:
                entry = self._entries[message.id] = _Entry(parcel, done, flow, streamer)
                if entries is None:
                    entries = self._flows[flow] = deque()
                entry.is_lost = bool(entries) and entries[-1].is_lost  # it would overtake messages that are sent again
                entries.append(entry)
                found = True
        return found

    def _awaited(self, authority: str) -> Streamer | None:
        return next((s for s in self._streamers.get(authority, ()) if s not in self._silent), None)

    def put(self, parcels: Sequence[Parcel], result: SendResult, done: Done, now_s: float) -> None:
        """Process the result of messages that were put. Report those that do not wait for a receipt to ``done``."""
        results = ResultRuns()
        for parcel in parcels:
            entry = self._entries.get(parcel.message.id)
            if entry is None or entry.parcel is not parcel:
                results.add(done, parcel, result)
            elif isinstance(result, SendError):
                if isinstance(result, LinkLostError):
                    result = LinkLostError(result.message)  # with receipts it returns until there is one
                    for earlier in self._remove_up_to(entry):
                        results.add(earlier.done, earlier.parcel, result)
                else:
                    self._remove(entry)
                results.add(done, parcel, result)
                self._settle(entry.flow, results)
            elif entry.is_lost:
                self._remove(entry)
                results.add(done, parcel, LinkLostError("the streamer on the other side is gone"))
            else:
                entry.put_s, entry.result = now_s, result
                self._settle(entry.flow, results)
        results.report()

    def receipts(self, streamer: Streamer, ids: bytes) -> None:
        """Process the receipts of a streamer: message ids of 16 bytes each.

        Receipts for messages that were not sent to this streamer are ignored. Unknown ids are of messages that other
        streamers sent, or come too late.
        """
        self._silent.discard(streamer)
        results = ResultRuns()
        for start in range(0, len(ids) - 15, 16):
            entry = self._entries.get(ids[start : start + 16])
            if entry is None or entry.is_lost:
                continue
            if streamer in self._streamers.get(entry.flow[1].authority, ()):
                entry.waits, entry.has_receipt = False, True
                self._settle(entry.flow, results)
        results.report()

    def tick(self, now_s: float) -> None:
        """Stop waiting for the receipts of flows whose first message has waited too long."""
        results = ResultRuns()
        for flow, entries in list(self._flows.items()):
            put_s = entries[0].put_s
            if put_s is not None and now_s - put_s >= self._patience_s:
                for entry in entries:
                    if entry.waits and entry.streamer is not None:
                        self._silent.add(entry.streamer)
                    entry.waits = False
                self._settle(flow, results)
        results.report()

    def lose_all(self) -> None:
        """Report all waiting messages as lost with the link."""
        for flow in list(self._flows):
            self._lose(flow)

    def _lose(self, flow: _Flow) -> None:
        """Report the messages of a flow that were put as lost. The others are lost when the sender reports their results."""
        results = ResultRuns()
        lost = LinkLostError("the streamer on the other side has not confirmed")
        for entry in list(self._flows.get(flow, ())):
            if entry.put_s is None:
                entry.is_lost = True
            else:
                self._remove(entry)
                results.add(entry.done, entry.parcel, lost)
        results.report()

    def _settle(self, flow: _Flow, results: ResultRuns) -> None:
        """Collect the results at the head of a flow: of messages that were put and no longer wait."""
        entries = self._flows.get(flow)
        while entries and not entries[0].waits and entries[0].put_s is not None:
            entry = entries[0]
            self._remove(entry)
            results.add(entry.done, entry.parcel, None if entry.has_receipt else entry.result)

    def _remove_up_to(self, entry: _Entry) -> list[_Entry]:
        """Remove an entry and all earlier ones of its flow. Return the earlier ones."""
        entries = self._flows[entry.flow]
        earlier = []
        while (head := entries[0]) is not entry:
            self._remove(head)
            earlier.append(head)
        self._remove(entry)
        return earlier

    def _remove(self, entry: _Entry) -> None:
        del self._entries[entry.parcel.message.id]
        entries = self._flows[entry.flow]
        if entries[0] is entry:
            entries.popleft()
        else:
            entries.remove(entry)
        if not entries:
            del self._flows[entry.flow]
