"""Sends dead letters and RPC error responses: ordinary messages, in ordinary lanes of queues of their own.

Those queues have no source endpoint, so what fails in them is counted and never reported again: no recursion.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from streamer.clock import Clock
from streamer.config.checks import ORIGIN
from streamer.config.models import QueueBounds, QueueConfig, QueuePolicy
from streamer.delivery.custody import Custody
from streamer.delivery.dead_letter import (
    FailedMessage,
    dead_letter,
    error_response,
    letter_of,
)
from streamer.delivery.dedup import SeenIds
from streamer.delivery.egress import Egress
from streamer.delivery.lane import Delivery
from streamer.delivery.queue import Room, RouteQueue, size_of
from streamer.delivery.settle import Settler
from streamer.delivery.stats import RouteStats
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Received
from streamer.transports.local import LOCAL_ENDPOINT
from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at, is_authority
from streamer.uprotocol.well_known import USTREAMER

logger = logging.getLogger("ustreamer.reporter")

_FULL = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "the queue for reports is full")
_EVICTED = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "evicted from the full queue for reports")


@dataclass(frozen=True, slots=True)
class NoticeOptions:
    """``endpoints`` are where dead letters go (`origin`: where the message came from); ``resource`` is their topic."""

    authority: str
    resource: int
    endpoints: tuple[str, ...]
    queue: QueueBounds
    policy: QueuePolicy


@dataclass(frozen=True, slots=True)
class Exit:
    """The way out for reports at one endpoint. ``authorities`` live behind it. Our own services get no dead letters."""

    egress: Egress
    dead_letters: RouteQueue | None
    responses: RouteQueue
    authorities: tuple[str, ...]
    addressed: bool


class FailureNotices:
    """Turns failures into dead letters and answers, and puts them on their way."""

    def __init__(self, options: NoticeOptions, settler: Settler, custody: Custody, seen: SeenIds, clock: Clock) -> None:
        self.options = options
        self.dead_letters: dict[tuple[str, UCode], int] = {}
        self.on_queued: Callable[[Egress], None] = lambda egress: None
        self._settler = settler
        self._custody = custody
        self._seen = seen
        self._clock = clock
        self._exits: dict[str, Exit] = {}

    def add_endpoint(self, name: str, egress: Egress, authorities: tuple[str, ...], addressed: bool) -> None:
        """Open the way out at one endpoint."""
        policy = self._policy()
        number = self._custody.number
        dead_letters = (
            None if name == LOCAL_ENDPOINT else RouteQueue(f"dead-letter/{name}", "", name, policy, RouteStats(), number)
        )
        responses = RouteQueue(f"rpc-error/{name}", "", name, policy, RouteStats(), number)
        for queue in (dead_letters, responses):
            if queue is not None:
                egress.add_queue(queue)
        self._exits[name] = Exit(egress, dead_letters, responses, authorities, addressed)

    def use(self, options: NoticeOptions, authorities: dict[str, tuple[str, ...]]) -> None:
        """Take other options, and other authorities behind the endpoints, from now on."""
        self.options = options
        for name, way in self._exits.items():
            for queue in (way.dead_letters, way.responses):
                if queue is not None:
                    queue.use(self._policy())
            self._exits[name] = replace(way, authorities=authorities.get(name, ()))

    def _policy(self) -> QueuePolicy:
        """Reports never hold anything up: at the bound the oldest go."""
        bounds = QueueConfig(messages=self.options.queue.messages, bytes=self.options.queue.bytes, on_full="evict")
        return self.options.policy.model_copy(update={"queue": bounds})

    def queues(self) -> list[RouteQueue]:
        """All queues for reports."""
        return [queue for way in self._exits.values() for queue in (way.dead_letters, way.responses) if queue is not None]

    def report(
        self, received: Received, ingress: str, failure: Failure, queue: RouteQueue | None, delivery: Delivery | None
    ) -> None:
        """Publish the dead letter of a message that came in through ``ingress``, and answer it if it was a Request.

        Where that endpoint is gone since a restart nobody can be told there; the letter is stored all the same.

        The dead letter of another streamer that we cannot deliver is counted and no more: two streamers that reported
        each other's reports would never end.
        """
        if self._is_dead_letter(received.message):
            return
        now_ms = self._clock.wall_ms()
        story = FailedMessage(
            received.message,
            failure,
            first_ms=now_ms if delivery is None else delivery.entered_ms,
            last_ms=now_ms,
            route="" if queue is None else queue.name,
            endpoint="" if queue is None else queue.target,
            attempts=0 if delivery is None else delivery.attempts,
        )
        counted = (story.route, failure.code)
        self.dead_letters[counted] = self.dead_letters.get(counted, 0) + 1
        if self._custody.journal is not None:
            self._custody.letter(letter_of(story, ingress, self._custody.number()))
        answer = error_response(story)
        origin = self._exits.get(ingress)  # None: an earlier run had that endpoint, this one has not
        if answer is not None and origin is not None:
            self._send(origin, origin.responses, answer)
        for name in dict.fromkeys(ingress if name == ORIGIN else name for name in self.options.endpoints):
            way = self._exits.get(name)
            if way is None or way.dead_letters is None:
                continue
            for sink in self._sinks(way, story, is_origin=name == ingress):
                letter = dead_letter(story, self.options.authority, self.options.resource, sink, keep_token=name == ingress)
                self._send(way, way.dead_letters, letter)

    def _is_dead_letter(self, message: UMessage) -> bool:
        source = message.attributes.source
        ours = USTREAMER.at(source.authority, self.options.resource)
        return message.attributes.type is UMessageType.PUBLISH and source == ours

    def _sinks(self, way: Exit, story: FailedMessage, is_origin: bool) -> list[UUri | None]:
        """Whom a dead letter is addressed to: on a network that wants an authority, whoever sent the message."""
        if not way.addressed:
            return [None]
        if is_origin:
            sender = story.message.attributes.source.authority
            return [everything_at(sender if sender and is_authority(sender) else ANY_AUTHORITY)]
        named = [authority for authority in way.authorities if authority != ANY_AUTHORITY]
        return [everything_at(authority) for authority in named or (ANY_AUTHORITY,)]

    def _send(self, way: Exit, queue: RouteQueue, message: UMessage) -> None:
        size = size_of(message)
        received = Received(message)
        self._seen.young[message.id] = None  # if the network echoes it, it is no news
        level = message.attributes.priority_class
        if queue.room_for(size) is not Room.YES and not self._settler.evict_for(queue, size, level, _EVICTED):
            self._settler.refuse(received, queue, _FULL)
            return
        lane = queue.lane((message.attributes.source, message.attributes.sink))
        delivery = queue.push(received, message, lane, self._clock.monotonic_s(), self._clock.wall_ms())
        self._custody.watch(delivery)
        way.egress.file(lane)
        self.on_queued(way.egress)
