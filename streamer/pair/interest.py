"""What the standby listens to beyond the routes: topics that somebody has subscribed to at the active one.

It has no services, which would know. So the active one tells it the interest in topics, and then what changes in it.
"""

from streamer.delivery.router import Router
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from streamer.uprotocol.uri import UriError, UUri

_OWNER = "pair"
_TOPICS_AT_ONCE = 1000


class ToldInterest:
    """Of the active one: tells the interest that its router knows, some topics at a time."""

    def __init__(self, router: Router) -> None:
        self._interest = router.interest
        self._changed: dict[UUri, None] = {}
        self._is_first = False
        router.on_interest = self._note

    def _note(self, topic: UUri) -> None:
        self._changed[topic] = None

    def tell_all(self) -> None:
        """Begin with everything: the other one has come."""
        self._changed = dict.fromkeys(self._interest.topics())
        self._is_first = True

    def take(self) -> pb.Interest | None:
        """Return what is to be told next; None if nothing has changed."""
        if not (self._changed or self._is_first):
            return None
        told = pb.Interest(is_first=self._is_first)
        self._is_first = False
        for topic in list(self._changed)[:_TOPICS_AT_ONCE]:
            del self._changed[topic]
            told.topics.add(topic=str(topic), authorities=self._interest.at(topic))
        return told


class HeardInterest:
    """Of the standby: has its router listen to what the active one has told."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._topics: dict[UUri, None] = {}

    def take(self, told: pb.Interest) -> None:
        """Use what was told. Topics that cannot be read are of another version."""
        if told.is_first:
            self.forget()
        for each in told.topics:
            try:
                topic = UUri.parse(each.topic)
            except UriError:
                continue
            if each.authorities:
                self._topics[topic] = None
            else:
                self._topics.pop(topic, None)
            self._router.set_interest(topic, dict(each.authorities), _OWNER)

    def forget(self) -> None:
        """Withdraw everything: from now on, this one's own services know."""
        topics, self._topics = self._topics, {}
        for topic in topics:
            self._router.set_interest(topic, {}, _OWNER)
