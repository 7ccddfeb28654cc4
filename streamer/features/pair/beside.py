"""Heartbeats beside the link of a pair: over the networks of the endpoints, where anybody can listen and send.

They carry a tag that only who has the key can make. The law of this file:
- A heartbeat counts if it names one that this streamer has just sent: nobody can have recorded it before. After a while of
  silence, any that is authentic is named in the next own one, so that the peer can prove itself.
"""

import hmac
import math

from streamer.features.pair import wire
from streamer.features.pair.lease import Heartbeat, Lease
from streamer.features.pair.sealing import TAG_BYTES
from streamer.uprotocol.proto import pair_v1_pb2 as pb

_KEY = b"uStreamer: a heartbeat beside the link of a pair\0"


class BesideTheLink:
    """Tags own heartbeats, and judges those that come from the networks. ``lease`` is that of this streamer.

    ``refused`` counts payloads of strangers. ``same_place_s``: when somebody was heard who has this place in the pair.
    """

    def __init__(self, key: bytes, authority: str, lease: Lease, silence_s: float) -> None:
        self._key = hmac.digest(key, _KEY + authority.encode(), "sha256")
        self._lease = lease
        self._silence_s = silence_s
        self._seen = 0, 0  # run and number of the peer's heartbeat that the next own one names
        self._proved_s = -math.inf
        self.refused = 0
        self.same_place_s = -math.inf

    def pack(self, heartbeat: pb.Heartbeat) -> bytes:
        """Return the payload that carries a heartbeat of this streamer."""
        run, number = self._seen
        packed = pb.Aside(heartbeat=heartbeat, seen_run=run, seen_number=number).SerializeToString()
        return self._tag(packed) + packed

    def heard(self, payload: bytes, now_s: float) -> Heartbeat | None:
        """Return the heartbeat of the peer in a payload that anybody may have sent; None if it proves nothing."""
        tag, packed = payload[:TAG_BYTES], payload[TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(packed)):
            self.refused += 1
            return None
        aside = pb.Aside.FromString(packed)
        heartbeat = wire.heartbeat_from_proto(aside.heartbeat)
        if heartbeat.name == self._lease.name:
            if heartbeat.run != self._lease.run:
                self.same_place_s = now_s
            return None
        is_proved = self._lease.has_just_sent(aside.seen_run, aside.seen_number, now_s)
        if is_proved or now_s - self._proved_s > self._silence_s:
            self._seen = heartbeat.run, heartbeat.number
        if is_proved:
            self._proved_s = now_s
        return heartbeat if is_proved else None

    def _tag(self, packed: bytes) -> bytes:
        return hmac.digest(self._key, packed, "sha256")[:TAG_BYTES]
