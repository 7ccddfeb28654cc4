"""core.usubscription, version 3: who has subscribed to which topic (requirement document 004).

``registry`` and ``remote_topic`` have the rules, ``rows`` what is on disk, ``wire`` what is in the messages. ``service`` is
the part with I/O; ``follow`` runs in its place when another service is followed.
"""

from streamer.services.usubscription.follow import Follower
from streamer.services.usubscription.service import USubscription

__all__ = ["Follower", "USubscription"]
