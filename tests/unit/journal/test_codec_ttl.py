"""A TTL that does not fit into 32 bits survives in the journal; an earlier version reads the one that it would have sent."""

from dataclasses import replace

import pytest

from streamer.journal import codec
from streamer.uprotocol.message import Options, Provenance, publish, request
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.flow.harness import CLOUD_METHOD, SPEED, VEHICLE_APP

NOW_MS = 1_790_000_000_000


@pytest.mark.parametrize("made_ms", [40_000, NOW_MS - 3_600_000, NOW_MS, NOW_MS + 3_600_000])
@pytest.mark.parametrize("identity", [None, "device-7"])
def test_the_deadline_survives(made_ms: int, identity: str | None) -> None:
    message = publish(made_ms, SPEED, b"x", Options(ttl=1000)).ending(NOW_MS + 1000, NOW_MS)
    if identity is not None:
        message = replace(message, attributes=replace(message.attributes, provenance=Provenance(identity, 6)))
    read = codec.unpack(codec.pack(message))
    assert read == message
    assert read.expires_ms(NOW_MS, 0) == NOW_MS + 1000
    assert read.attributes.provenance == message.attributes.provenance


def test_an_earlier_version_reads_what_it_knows() -> None:
    message = request(40_000, VEHICLE_APP, CLOUD_METHOD, 1000).ending(NOW_MS + 1000, NOW_MS)
    read = pb.UMessage.FromString(codec.pack(message))
    assert read.attributes.ttl == 0xFFFF_FFFF
    assert read.attributes.sink.resource_id == CLOUD_METHOD.resource


def test_messages_whose_ttl_fits_are_written_as_before() -> None:
    message = publish(NOW_MS, SPEED, b"x", Options(ttl=1000))
    attributes = pb.UMessage.FromString(codec.pack(message)).attributes
    attributes.ClearField("id")
    assert codec._pack_attributes(message.attributes) == attributes.SerializeToString()
