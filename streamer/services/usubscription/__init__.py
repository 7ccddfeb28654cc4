"""core.usubscription, version 3: who wants which topic (requirement document 004).

``book`` and ``remote`` are the rules, ``rows`` what is on disk, ``wire`` what is in the messages, ``service`` the part that
does something, and ``follow`` what runs in its place when another service is followed.
"""

from streamer.services.usubscription.follow import Follower
from streamer.services.usubscription.service import USubscription

__all__ = ["Follower", "USubscription"]
