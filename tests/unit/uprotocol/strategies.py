"""Strategies for Hypothesis: names, patterns, attributes and messages that are valid."""

from hypothesis import strategies as st

from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.examples import characters

START_MS = 1_700_000_000_000

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-._~", min_size=1, max_size=128)
ip_literals = st.ip_addresses(v=6).map(lambda ip: f"[{ip}]")
authorities = st.one_of(names, ip_literals)
anyone = st.one_of(authorities, st.just(""), st.just("*"))

uint16 = st.integers(0, 0xFFFF)
uint32 = st.integers(0, 0xFFFF_FFFF)

patterns = st.builds(
    UUri,
    anyone,
    st.builds(lambda instance, type_id: instance << 16 | type_id, st.just(0xFFFF) | uint16, st.just(0xFFFF) | uint16),
    st.just(0xFF) | st.integers(0, 0xFF),
    st.just(0xFFFF) | uint16,
)
entities = st.builds(lambda instance, type_id: instance << 16 | type_id, st.integers(0, 0xFFFE), st.integers(0, 0xFFFE))


def named(resource: st.SearchStrategy[int]) -> st.SearchStrategy[UUri]:
    """Names without any wildcard."""
    return st.builds(UUri, authorities, entities, st.integers(0, 0xFE), resource)


topics = named(st.integers(0x8000, 0xFFFE))
methods = named(st.integers(1, 0x7FFF))
uentities = named(st.just(0))
ids = st.builds(
    lambda ms, a, b: ms.to_bytes(6, "big") + (0x7000 | a).to_bytes(2, "big") + (1 << 63 | b).to_bytes(8, "big"),
    st.integers(0, (1 << 48) - 1),
    st.integers(0, 0xFFF),
    st.integers(0, (1 << 62) - 1),
)
traceparents = st.builds(
    lambda trace, parent, flags: f"00-{trace:032x}-{parent:016x}-{flags:02x}",
    st.integers(1, (1 << 128) - 1),
    st.integers(1, (1 << 64) - 1),
    st.integers(0, 0xFF),
)
_texts = st.text(characters, max_size=40)
_some = {
    "permission_level": st.none() | uint32,
    "token": st.none() | _texts,
    "traceparent": st.none() | traceparents,
    "payload_format": st.sampled_from(UPayloadFormat),
}
_urgent = st.sampled_from([UPriority.CS4, UPriority.CS5, UPriority.CS6])

attributes = st.one_of(
    st.builds(
        Attributes,
        type=st.just(UMessageType.PUBLISH),
        source=topics,
        sink=st.none() | authorities.map(everything_at),
        priority=st.sampled_from(UPriority),
        ttl=st.none() | uint32,
        **_some,
    ),
    st.builds(
        Attributes,
        type=st.just(UMessageType.NOTIFICATION),
        source=topics,
        sink=uentities,
        priority=st.sampled_from(UPriority),
        ttl=st.none() | uint32,
        **_some,
    ),
    st.builds(
        Attributes,
        type=st.just(UMessageType.REQUEST),
        source=uentities,
        sink=methods,
        priority=_urgent,
        ttl=st.integers(1, 0xFFFF_FFFF),
        **_some,
    ),
    st.builds(
        Attributes,
        type=st.just(UMessageType.RESPONSE),
        source=methods,
        sink=uentities,
        priority=_urgent,
        ttl=st.none() | uint32,
        commstatus=st.none() | st.sampled_from(UCode),
        reqid=ids,
        **_some,
    ),
)
messages = st.builds(UMessage, ids, attributes, st.none() | st.binary(max_size=64))
