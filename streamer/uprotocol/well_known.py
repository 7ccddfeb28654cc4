"""The ids of the uEntities that a streamer may be, and the name of the endpoint inside it where they live. Pure."""

from typing import NamedTuple

from streamer.uprotocol.uri import UUri


class EntityId(NamedTuple):
    """A uEntity, without its authority."""

    ue_id: int
    version: int

    def at(self, authority: str, resource: int = 0) -> UUri:
        """Return the address of this uEntity at an authority (resource 0), or of one of its methods or topics."""
        return UUri(authority, self.ue_id, self.version, resource)


USTREAMER = EntityId(4, 1)
"""core.ustreamer, the streamer itself: an extension of this project (`proto/ustreamer_v1.proto`)."""

USUBSCRIPTION = EntityId(0, 3)
"""core.usubscription, version 3 (`proto/usubscription_v3.proto`). A streamer asks other services under this name, in
whichever version."""

USUBSCRIPTION_4 = EntityId(0, 4)
"""core.usubscription, version 4 (`proto/usubscription_v4.proto`)."""

USUBSCRIPTIONS = (USUBSCRIPTION, USUBSCRIPTION_4)
"""All versions of core.usubscription that a streamer serves."""

UTWIN = EntityId(3, 2)
"""core.utwin, version 2 (`proto/utwin_v2.proto`)."""

CHANGES = 0x8000
"""The topic on which core.usubscription publishes changes of subscriptions."""

PING = 4
"""The method of core.ustreamer that only answers."""

DEAD_LETTERS = 0x8001
"""The topic on which core.ustreamer publishes dead letters, unless the configuration names another one."""

STATUS = 0x8002
"""The topic on which core.ustreamer publishes its status."""

LOCAL_ENDPOINT = "core"
"""The endpoint inside the streamer. No endpoint of the configuration may have this name."""
