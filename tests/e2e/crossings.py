"""Messages that cross the streamer in either direction."""

from hypothesis import strategies as st

from tests.e2e.topology import TopologyThread
from tests.independent.message import Plain, inversions, uuid7

# Without U+FEFF: MQTT allows it (MQTT-1.5.4-3), but paho, the uEntity's client, ends its connection over it.
text = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn"), exclude_characters="\ufeff"), min_size=1, max_size=30)


traceparents = st.builds(
    lambda trace, parent, flags: f"00-{trace:032x}-{parent:016x}-{flags:02x}",
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.integers(0, 255),
)


entities = st.builds(
    lambda type_id, instance, version: (instance << 16 | type_id, version),
    st.integers(0, 0xFFFE),
    st.sampled_from([0, 1, 0x4A, 0xFFFE]),
    st.integers(0, 0xFE),
).filter(lambda entity: entity not in ((0, 3), (0, 4)))  # uSubscription: on a local network the daemon itself


@st.composite
def messages(draw: st.DrawFn, here: str, there: str) -> Plain:
    """Any legal message from authority ``here`` to authority ``there``."""
    kind = draw(st.sampled_from([1, 2, 3, 4]))
    near, far = draw(entities), draw(entities)
    topic, method = draw(st.integers(0x8000, 0xFFFE)), draw(st.integers(1, 0x7FFF))
    source_resource = {1: topic, 2: 0, 3: method, 4: topic}[kind]
    sink_resource = {1: None, 2: method, 3: 0, 4: 0}[kind]
    is_rpc = kind in (2, 3)
    payload_format = draw(st.integers(0, 8))
    return Plain(
        type=kind,
        source=(here, *near, source_resource),
        sink=None if sink_resource is None else (there, *far, sink_resource),
        payload=draw(st.binary(max_size=200)),
        priority=draw(st.integers(5, 7) if is_rpc else st.integers(0, 7)),
        ttl=draw(st.sampled_from([60_000, 61_500, 3_600_001] if kind == 2 else [None, 0, 60_000, 61_500, 2**32 - 1])),
        permission_level=draw(st.none() | st.sampled_from([0, 1, 2**32 - 1])),
        commstatus=draw(st.none() | st.integers(0, 16)),
        reqid=uuid7() if kind == 3 else None,
        token=draw(st.none() | text),
        traceparent=draw(st.none() | traceparents),
        payload_format=payload_format,
        id=uuid7(),
    )


def cross_each_type(topology_thread: TopologyThread, direction: int) -> None:
    """Send messages of each type to one side: each arrives once on the other one, and in order."""
    here, there = ("alpha", "beta") if direction == 0 else ("beta", "alpha")
    batch = [
        Plain(
            type=1 + number % 4,
            source=(here, 0x10000 + number % 5, 1, [0x8001, 0, 7, 0x8002][number % 4]),
            sink=[None, (there, 2, 1, 9), (there, 2, 1, 0), (there, 2, 1, 0)][number % 4],
            payload=number.to_bytes(4, "big"),
            priority=5,
            ttl=60_000,
            reqid=uuid7() if number % 4 == 2 else None,
        )
        for number in range(1200)
    ]
    far = topology_thread.topology.networks[1 - direction]
    arrived = topology_thread.run(topology_thread.topology.exchange(direction, batch))
    assert sorted(m.id for m in arrived) == sorted(m.id for m in batch)
    assert inversions(arrived, [far.as_arriving(m) for m in batch]) == 0
    topology_thread.topology.daemon.check_books()
