"""Failure notices: makes the dead letters and error Responses for failed messages, and owns the queues that send them.

Notices are ordinary messages, in ordinary lanes. Their queues have no source endpoint; a notice that fails itself is only
counted. The settler sends the notices that are made here.

Anybody can cause any number of failures, under any name, with messages that are never accepted. So notices about these have
the lowest priority class and evict none about accepted messages. If no route took the message, they have a rate limit. If
its source does not live where it came from, they go only to that endpoint and to configured ones, without an addressee.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from streamer.clock import Clock
from streamer.config.checks import ORIGIN
from streamer.config.models import Config, QueueBounds, QueueConfig, QueuePolicy, ReportRateConfig
from streamer.delivery.custody.custody import Custody
from streamer.delivery.lanes.lane import Delivery, LaneOwner
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.observers import OutcomeObserver
from streamer.delivery.outcomes.dead_letter import dead_letter, error_response, letter_of
from streamer.delivery.stats import RouteStats
from streamer.rate import ByKey, Pace
from streamer.routing.outcome import NOWHERE, FailedMessage, Failure, Where
from streamer.routing.table import homes_of
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at, is_authority
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USTREAMER

# Source authorities with a rate of their own, at all endpoints together. Further ones share one.
_MAX_RATES = 256
_REFUSALS = (UCode.UNAUTHENTICATED, UCode.PERMISSION_DENIED)


@dataclass(frozen=True, slots=True)
class NoticeOptions:
    """``endpoints`` receive dead letters (`origin`: where the message came from); ``resource`` is that of their topic."""

    authority: str
    resource: int
    endpoints: tuple[str, ...]
    queue: QueueBounds
    policy: QueuePolicy
    report_rate: ReportRateConfig | None = None

    @classmethod
    def of(cls, config: Config) -> "NoticeOptions":
        """Return the options that a configuration has."""
        letters = config.dead_letter
        return cls(
            config.authority,
            letters.resource,
            tuple(letters.endpoints),
            letters.queue,
            config.queue_policy,
            letters.report_rate,
        )


@dataclass(frozen=True, slots=True)
class NoticePath:
    """The queues for notices at one endpoint, and the authorities behind it. The local endpoint gets no dead letters.

    ``addressed``: a Publish needs a sink authority on its network.
    """

    dead_letters: RouteQueue | None
    responses: RouteQueue
    authorities: tuple[str, ...]
    addressed: bool


class FailureNotices:
    """Makes dead letters and error Responses of failures.

    ``made`` counts the dead letters since the start; ``suppressed`` counts, by ingress, the failures that were not reported
    because there were too many.
    """

    def __init__(
        self, options: NoticeOptions, custody: Custody, clock: Clock, observers: Sequence[OutcomeObserver] = ()
    ) -> None:
        self.options = options
        self.made = 0
        self.suppressed: dict[str, int] = {}
        self._rates = _rates(options.report_rate)
        self._custody = custody
        self._clock = clock
        self._paths: dict[str, NoticePath] = {}
        self._observers = observers

    def add_endpoint(
        self, name: str, owner: LaneOwner, authorities: tuple[str, ...], addressed: bool
    ) -> tuple[RouteQueue, ...]:
        """Add the queues for notices at one more endpoint, and return them. ``owner`` sends their messages."""
        letters = None if name == LOCAL_ENDPOINT else self._queue(f"dead-letter/{name}", name, owner)
        responses = self._queue(f"rpc-error/{name}", name, owner)
        self._paths[name] = NoticePath(letters, responses, authorities, addressed)
        if letters is not None:
            self.suppressed[name] = 0
        return (responses,) if letters is None else (letters, responses)

    def _queue(self, name: str, target: str, owner: LaneOwner) -> RouteQueue:
        return RouteQueue(name, "", target, self._policy(), RouteStats(), owner, self._custody.number)

    def remove_endpoint(self, name: str) -> None:
        """Send no more notices at an endpoint, and forget its counts. Its queues must be empty."""
        del self._paths[name]
        self.suppressed.pop(name, None)

    def use(self, options: NoticeOptions, authorities: Mapping[str, tuple[str, ...]], addressed: Collection[str]) -> None:
        """Use other options and other authorities of the endpoints from now on.

        ``addressed`` names the endpoints on whose network a Publish needs a sink authority.
        """
        if options.report_rate != self.options.report_rate:
            self._rates = _rates(options.report_rate)
        self.options = options
        for name, path in self._paths.items():
            for queue in (path.dead_letters, path.responses):
                if queue is not None:
                    queue.use(self._policy())
            self._paths[name] = replace(path, authorities=authorities.get(name, ()), addressed=name in addressed)

    def _policy(self) -> QueuePolicy:
        """Return the policy of notice queues. They apply no back-pressure: at the bound the oldest notices are evicted."""
        bounds = QueueConfig(messages=self.options.queue.messages, bytes=self.options.queue.bytes, on_full="evict")
        return self.options.policy.model_copy(update={"queue": bounds, "rate": None, "rate_per_authority": None})

    def queues(self) -> list[RouteQueue]:
        """Return all queues for notices."""
        return [queue for path in self._paths.values() for queue in (path.dead_letters, path.responses) if queue is not None]

    def of(
        self,
        received: Received,
        ingress: str,
        stats: RouteStats,
        failure: Failure,
        where: Where = NOWHERE,
        delivery: Delivery | None = None,
    ) -> list[tuple[RouteQueue, UMessage]]:
        """Make the dead letters of a message that came in through ``ingress``, and the error Response if it was a Request.

        Return each with the queue to send it from: the caller sends them. The failure counts on the account ``stats``, and
        the journal stores the dead letter. If the ingress no longer exists after a restart, nothing is sent there.

        Nothing is made for a dead letter of another streamer, or two streamers could report each other's dead letters
        endlessly; nor for a status, because the next one follows soon.
        """
        if self.is_only_counted(received.message):
            return []
        now_ms = self._clock.wall_ms()
        failed = FailedMessage(
            received.message,
            failure,
            first_ms=now_ms if delivery is None else delivery.entered_ms,
            last_ms=now_ms,
            route=where.route,
            endpoint=where.endpoint,
            attempts=0 if delivery is None else delivery.attempts,
            sink=where.sink,
        )
        self.made += 1
        stats.count_dead_letter(failure.code)
        number = None if self._custody.journal is None else self._custody.number()
        if number is not None:
            self._custody.letter(letter_of(failed, ingress, number), received)
        for observer in self._observers:
            observer.dead_lettered(failed, number)
        if failed.was_accepted or failed.route:
            notices = self._notices_of(failed, ingress, ())
        else:
            notices = self._limited_notices(failed, ingress)
        if failed.was_accepted:
            return notices
        return [(queue, replace(notice, attributes=notice.attributes.below(0))) for queue, notice in notices]

    def _notices_of(
        self, failed: FailedMessage, ingress: str, elsewhere: Collection[str]
    ) -> list[tuple[RouteQueue, UMessage]]:
        """Make all notices of a failure, but none for ``elsewhere``: where its source lives, unless it came in there."""
        notices: list[tuple[RouteQueue, UMessage]] = []
        answer = error_response(failed)
        origin = self._paths.get(ingress)  # None: the endpoint was there in an earlier process only
        if answer is not None and origin is not None:
            notices.append((origin.responses, answer))
        sender = "" if elsewhere else failed.message.attributes.source.authority
        for name in dict.fromkeys(ingress if name == ORIGIN else name for name in self.options.endpoints):
            path = self._paths.get(name)
            if path is None or path.dead_letters is None or name in elsewhere:
                continue
            for sink in self._sinks(path, sender, is_origin=name == ingress):
                letter = dead_letter(failed, self.options.authority, self.options.resource, sink)
                notices.append((path.dead_letters, letter))
        return notices

    def _limited_notices(self, failed: FailedMessage, ingress: str) -> list[tuple[RouteQueue, UMessage]]:
        """Make the notices of a message that no route took, within the report rate. The local endpoint has no rate."""
        authority = failed.message.attributes.source.authority
        authorities = {name: path.authorities for name, path in self._paths.items()}
        homes = (ingress,) if ingress == LOCAL_ENDPOINT else homes_of(authority, authorities)
        is_at_home = ingress in homes
        if not is_at_home or failed.failure.code in _REFUSALS:
            failed = replace(failed, is_withheld=True)
        elsewhere = () if is_at_home else homes or (LOCAL_ENDPOINT,)
        if self._rates is None or ingress == LOCAL_ENDPOINT:
            return self._notices_of(failed, ingress, elsewhere)
        now_s = self._clock.monotonic_s()
        pace = self._rates.of((authority, ingress), now_s)
        if pace.ready_in(now_s):
            if ingress in self.suppressed:  # else the endpoint was removed
                self.suppressed[ingress] += 1
            return []
        notices = self._notices_of(failed, ingress, elsewhere)
        pace.spend(1, sum(notice.size for _, notice in notices))
        return notices

    def is_only_counted(self, message: UMessage) -> bool:
        """Whether a failure of this message is counted without notices: a dead letter of a streamer, or its status.

        Any Publish of a streamer counts as one, because the topic of its dead letters depends on its configuration.
        """
        return message.attributes.type is UMessageType.PUBLISH and message.attributes.source[1:3] == USTREAMER

    def _sinks(self, path: NoticePath, sender: str, is_origin: bool) -> list[UUri | None]:
        """Return the sinks of a dead letter: [None], or where the network needs one, that of the message's sender."""
        if not path.addressed:
            return [None]
        if is_origin:
            return [everything_at(sender if sender and is_authority(sender) else ANY_AUTHORITY)]
        named = [authority for authority in path.authorities if authority != ANY_AUTHORITY]
        return [everything_at(authority) for authority in named or (ANY_AUTHORITY,)]


def _rates(rate: ReportRateConfig | None) -> ByKey[Pace] | None:
    return None if rate is None else ByKey(lambda: Pace(rate.messages, rate.bytes, rate.burst_s), _MAX_RATES)
