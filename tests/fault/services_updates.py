"""The Updates that the services send: decided, arrived, held up; and whether they follow the state machine."""

import random
from collections import Counter, deque
from collections.abc import Iterator

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto
from streamer.uprotocol.uri import UUri
from tests.fault.services_model import EDGES, UNSUBSCRIBED, Told, is_remote


class BrokenError(AssertionError):
    """The services have done what they must not; the text says what, and what went before."""


class Updates:
    """``lanes``: what is held up, by sink, each with its number. ``decided``: what was new since it was last emptied."""

    def __init__(self, figures: Counter[str]) -> None:
        self._figures = figures
        self._payloads: dict[bytes, bytes | None] = {}  # of every Update that was ever said
        self._arrived: set[bytes] = set()
        self._settled: set[bytes] = set()
        self._last: dict[tuple[UUri, UUri, UUri], int] = {}  # what each sink heard last of a topic and a subscriber
        self.decided: list[Told] = []
        self.lanes: dict[UUri, deque[tuple[int, UMessage]]] = {}

    def say(self, number: int, message: UMessage) -> bool:
        """A service has said one; whether it is safe. Raises `BrokenError`."""
        told, sink = _told(message), message.attributes.sink
        if message.id not in self._payloads:
            self._payloads[message.id] = message.payload
            self.decided.append(told)
        elif self._payloads[message.id] != message.payload:
            raise BrokenError(f"the same id with another payload: {told}")
        if sink in self.lanes:
            self.lanes[sink].append((number, message))
            return False
        self._arrive(message)
        return True

    def hold(self, sink: UUri) -> None:
        """Nothing gets through to ``sink`` from now on."""
        self.lanes.setdefault(sink, deque())

    def let_through(self, sink: UUri) -> Iterator[int]:
        """The contrary. The numbers of what is safe now."""
        for number, message in self.lanes.pop(sink):
            self._arrive(message)
            yield number

    def lose(self, chance: random.Random) -> None:
        """The router was killed with the service: of each lane, a journal has kept as much as it has."""
        for lane in self.lanes.values():
            for _, message in list(lane)[: chance.randint(0, len(lane))]:
                self._arrive(message)
            lane.clear()

    def settle(self) -> None:
        """The services know that all is safe, and have had time to write it down: nothing of it may be said again."""
        if missing := self._payloads.keys() - self._arrived:
            raise BrokenError(f"{len(missing)} Updates have never arrived")
        self._settled = set(self._arrived)

    def _arrive(self, message: UMessage) -> None:
        if message.id in self._arrived:
            self._figures["repeats"] += 1
            if message.id in self._settled:
                raise BrokenError(f"said again for no reason: {_told(message)}")
            return
        self._arrived.add(message.id)
        self._figures["updates"] += 1
        told = _told(message)
        if told.sink != told.subscriber:
            return  # an observer does not hear what was before and after
        key = told.sink, told.topic, told.subscriber
        edge = self._last.get(key, UNSUBSCRIBED), told.state
        if edge == (UNSUBSCRIBED, UNSUBSCRIBED):
            return  # an observer's registration has ended
        if edge not in EDGES[is_remote(told.topic)]:
            raise BrokenError(f"no transition of the state machine: {edge[0]} to {edge[1]} in {told}")
        self._last[key] = told.state


def _told(message: UMessage) -> Told:
    update = pb.Update.FromString(message.payload or b"")
    source, sink = message.attributes.source, message.attributes.sink
    assert sink is not None
    assert source == UUri(source.authority, 0, 3, 0x8000)
    about = uri_from_proto(update.subscriber.uri)
    return Told(sink, source.authority, uri_from_proto(update.topic), about, update.status.state)
