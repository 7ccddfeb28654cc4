"""core.usubscription, versions 3 and 4: who has subscribed to which topic (requirement document 004).

``registry`` and ``remote_topic`` have the rules, ``rows`` the form on disk, ``v3`` and ``v4`` the messages of the two
versions; both work on the same subscriptions. ``service`` is the part with I/O; ``follow`` runs in its place when another
service is followed.
"""

from streamer.features.usubscription.follow import Follower
from streamer.features.usubscription.service import USubscription

__all__ = ["Follower", "USubscription"]
