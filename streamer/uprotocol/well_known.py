"""The ids of the uEntities that a streamer may be, and the endpoint inside it that they are at. Pure."""

from typing import NamedTuple

from streamer.uprotocol.uri import UUri


class EntityId(NamedTuple):
    """A uEntity whatever its authority."""

    ue_id: int
    version: int

    def at(self, authority: str, resource: int = 0) -> UUri:
        """This uEntity at an authority (resource 0), or one of its methods or topics."""
        return UUri(authority, self.ue_id, self.version, resource)


USTREAMER = EntityId(4, 1)
"""core.ustreamer, the streamer itself: an extension of ours (`proto/ustreamer_v1.proto`)."""

USUBSCRIPTION = EntityId(0, 3)
"""core.usubscription (`proto/usubscription_v3.proto`)."""

LOCAL_ENDPOINT = "core"
"""The endpoint inside the streamer. No endpoint of the configuration may be called so."""
