"""What is told about a failure: dead letters and RPC error responses, and the queues that they are sent from.

They are ordinary messages, in ordinary lanes. Their queues have no source endpoint, so what fails in them is counted and
causes no further notice. The settler sends what is made here.
"""

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
from streamer.delivery.lane import Delivery, LaneOwner, LaneQueue
from streamer.delivery.queue import RouteQueue
from streamer.delivery.stats import RouteStats
from streamer.routing.outcome import Failure
from streamer.transports.base import Received
from streamer.transports.local import LOCAL_ENDPOINT
from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at, is_authority
from streamer.uprotocol.well_known import USTREAMER


@dataclass(frozen=True, slots=True)
class NoticeOptions:
    """``endpoints`` are where dead letters go (`origin`: where the message came from); ``resource`` is their topic."""

    authority: str
    resource: int
    endpoints: tuple[str, ...]
    queue: QueueBounds
    policy: QueuePolicy


@dataclass(frozen=True, slots=True)
class NoticePath:
    """The queues for notices at one endpoint, and the authorities behind it. Our own services get no dead letters.

    ``addressed``: a Publish needs a sink authority on its network.
    """

    dead_letters: RouteQueue | None
    responses: RouteQueue
    authorities: tuple[str, ...]
    addressed: bool


class FailureNotices:
    """Turns failures into dead letters and answers. ``dead_letters`` counts them by route and code."""

    def __init__(self, options: NoticeOptions, custody: Custody, clock: Clock) -> None:
        self.options = options
        self.dead_letters: dict[tuple[str, UCode], int] = {}
        self._custody = custody
        self._clock = clock
        self._paths: dict[str, NoticePath] = {}

    def add_endpoint(
        self, name: str, owner: LaneOwner, authorities: tuple[str, ...], addressed: bool
    ) -> tuple[RouteQueue, ...]:
        """Have notices sent at one more endpoint. Their queues are returned, for ``owner`` to serve."""
        letters = None if name == LOCAL_ENDPOINT else self._queue(f"dead-letter/{name}", name, owner)
        responses = self._queue(f"rpc-error/{name}", name, owner)
        self._paths[name] = NoticePath(letters, responses, authorities, addressed)
        return (responses,) if letters is None else (letters, responses)

    def _queue(self, name: str, target: str, owner: LaneOwner) -> RouteQueue:
        return RouteQueue(name, "", target, self._policy(), RouteStats(), owner, self._custody.number)

    def use(self, options: NoticeOptions, authorities: dict[str, tuple[str, ...]]) -> None:
        """Take other options, and other authorities behind the endpoints, from now on."""
        self.options = options
        for name, path in self._paths.items():
            for queue in (path.dead_letters, path.responses):
                if queue is not None:
                    queue.use(self._policy())
            self._paths[name] = replace(path, authorities=authorities.get(name, ()))

    def _policy(self) -> QueuePolicy:
        """Notices never hold anything up: at the bound the oldest go."""
        bounds = QueueConfig(messages=self.options.queue.messages, bytes=self.options.queue.bytes, on_full="evict")
        return self.options.policy.model_copy(update={"queue": bounds})

    def queues(self) -> list[RouteQueue]:
        """All queues for notices."""
        return [queue for path in self._paths.values() for queue in (path.dead_letters, path.responses) if queue is not None]

    def of(
        self, received: Received, ingress: str, failure: Failure, queue: LaneQueue | None, delivery: Delivery | None
    ) -> list[tuple[RouteQueue, UMessage]]:
        """The dead letters of a message that came in through ``ingress``, and its answer if it was a Request; with the queue
        of each. The journal keeps the dead letter as well.

        If that endpoint is gone since a restart nobody can be told there; the letter is stored all the same.

        A dead letter of another streamer that we cannot deliver is counted and no more: two streamers that published dead
        letters about each other's dead letters would never end.
        """
        if self._is_dead_letter(received.message):
            return []
        now_ms = self._clock.wall_ms()
        failed = FailedMessage(
            received.message,
            failure,
            first_ms=now_ms if delivery is None else delivery.entered_ms,
            last_ms=now_ms,
            route="" if queue is None else queue.name,
            endpoint="" if queue is None else queue.target,
            attempts=0 if delivery is None else delivery.attempts,
        )
        counted = (failed.route, failure.code)
        self.dead_letters[counted] = self.dead_letters.get(counted, 0) + 1
        if self._custody.journal is not None:
            self._custody.letter(letter_of(failed, ingress, self._custody.number()))
        notices: list[tuple[RouteQueue, UMessage]] = []
        answer = error_response(failed)
        origin = self._paths.get(ingress)  # None: an earlier run had that endpoint, this one has not
        if answer is not None and origin is not None:
            notices.append((origin.responses, answer))
        for name in dict.fromkeys(ingress if name == ORIGIN else name for name in self.options.endpoints):
            path = self._paths.get(name)
            if path is None or path.dead_letters is None:
                continue
            for sink in self._sinks(path, failed, is_origin=name == ingress):
                letter = dead_letter(failed, self.options.authority, self.options.resource, sink, keep_token=name == ingress)
                notices.append((path.dead_letters, letter))
        return notices

    def _is_dead_letter(self, message: UMessage) -> bool:
        source = message.attributes.source
        ours = USTREAMER.at(source.authority, self.options.resource)
        return message.attributes.type is UMessageType.PUBLISH and source == ours

    def _sinks(self, path: NoticePath, failed: FailedMessage, is_origin: bool) -> list[UUri | None]:
        """Whom a dead letter is addressed to: on a network that wants an authority, whoever sent the message."""
        if not path.addressed:
            return [None]
        if is_origin:
            sender = failed.message.attributes.source.authority
            return [everything_at(sender if sender and is_authority(sender) else ANY_AUTHORITY)]
        named = [authority for authority in path.authorities if authority != ANY_AUTHORITY]
        return [everything_at(authority) for authority in named or (ANY_AUTHORITY,)]
