"""The interest in topics beyond the routes, which the active streamer sends to the standby: somebody has subscribed to them.

The standby has no services, which would know. So the active streamer sends all such topics, and then each change.
"""

from collections.abc import Mapping

from streamer.delivery.router import Router
from streamer.routing.interest import Interest
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from streamer.uprotocol.uri import UriError, UUri

_OWNER = "pair"
_TOPICS_AT_ONCE = 1000


class ToldInterest:
    """The topics whose interest the active streamer has still to send to the standby."""

    def __init__(self) -> None:
        self._changed: dict[UUri, None] = {}
        self._is_first = False

    def interest_changed(self, topic: UUri, before: Mapping[str, int], is_new: bool) -> None:
        self._changed[topic] = None

    def interest_used(self, interest: Interest) -> None:
        pass

    def tell_all(self, interest: Interest) -> None:
        """Begin anew with all topics, for a standby that has just connected."""
        self._changed = dict.fromkeys(interest.topics())
        self._is_first = True

    def take(self, interest: Interest) -> pb.Interest | None:
        """Return the next topics to send, with their authorities; None if no interest has changed."""
        if not (self._changed or self._is_first):
            return None
        told = pb.Interest(is_first=self._is_first)
        self._is_first = False
        for topic in list(self._changed)[:_TOPICS_AT_ONCE]:
            del self._changed[topic]
            told.topics.add(topic=str(topic), authorities=interest.at(topic))
        return told


class HeardInterest:
    """The topics that the active streamer has sent, in which a router on standby is interested."""

    def __init__(self) -> None:
        self._topics: dict[UUri, None] = {}

    def take(self, told: pb.Interest, router: Router) -> None:
        """Have a router listen to the topics of a message. Topics that cannot be read are of another version."""
        if told.is_first:
            self.forget(router)
        for each in told.topics:
            try:
                topic = UUri.parse(each.topic)
            except UriError:
                continue
            if each.authorities:
                self._topics[topic] = None
            else:
                self._topics.pop(topic, None)
            router.set_interest(topic, dict(each.authorities), _OWNER)

    def forget(self, router: Router) -> None:
        """Withdraw every topic, because the router's own services know the interest from now on."""
        topics, self._topics = self._topics, {}
        for topic in topics:
            router.set_interest(topic, {}, _OWNER)
