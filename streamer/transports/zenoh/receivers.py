"""Which subscribers are receivers of a message that has a sink, by what they have subscribed to. Pure.

Somebody who records everything takes such a message too, but it is not for him. What he has subscribed to tells:

- If all of the sink is ``*``, Publishes match as well, unless the source's resource is that of a Request or Response.
  That is a recorder. A listener for messages to everybody (another streamer's, for the authority ``*``) takes no Publish
  (`wire.narrowed`).
- A uTransport subscribes to keys of eleven segments, each a name or ``*``. A ``**`` at the end means the same as the missing
  segments; other keys with ``**`` or ``$*`` are a recorder's, too.

Everything else is a receiver, also a subscriber to a whole authority: a streamer subscribes to it, too.
"""

from collections.abc import Iterable

MANY = 4096
"""With more key expressions than that, or `_MANY_WILD` with wildcards, nobody is told apart."""

_MANY_WILD = 256
_SEGMENTS = 11
_FIRST_TOPIC = 0x8000


class Subscribers:
    """The key expressions that match a watched key, and belong to others."""

    __slots__ = ("_exact", "_wild", "is_unknown", "keys")

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = frozenset(keys)
        receivers = [segments for key in self.keys if (segments := receiver_segments(key))]
        self._exact = {"/".join(segments) for segments in receivers if "*" not in segments}
        self._wild = [segments for segments in receivers if "*" in segments]
        # None at all: somebody is there, but Zenoh does not say who.
        self.is_unknown = not self.keys or len(self.keys) > MANY or len(self._wild) > _MANY_WILD

    def reach(self, flow: str) -> bool:
        """Whether one of them is a receiver of what is put on this key."""
        if self.is_unknown or flow in self._exact:
            return True
        segments = flow.split("/")
        return any(
            all(mine in ("*", its) for mine, its in zip(wild, segments, strict=True))
            for wild in self._wild
            if len(segments) == _SEGMENTS
        )


def receiver_segments(key: str) -> list[str]:
    """The eleven segments of a key expression whose subscriber receives messages with a sink; none for a recorder."""
    segments = key.split("/")
    if segments[-1] == "**":
        segments[-1:] = ["*"] * (_SEGMENTS + 1 - len(segments))
    if len(segments) != _SEGMENTS or segments[0] != "up" or any("*" in name and name != "*" for name in segments):
        return []
    source_resource, sink = segments[5], segments[6:]
    return [] if sink == ["*"] * 5 and _takes_topics(source_resource) else segments


def _takes_topics(resource: str) -> bool:
    try:
        return resource == "*" or int(resource, 16) >= _FIRST_TOPIC
    except ValueError:
        return True
