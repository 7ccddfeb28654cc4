"""What a pair says to each other: what one has written is what the other one reads, whatever strangers have put into it."""

from hypothesis import given
from hypothesis import strategies as st

from streamer.features.pair.disk import CopyClaim, Origin
from streamer.features.pair.lease import Heartbeat
from streamer.features.pair.mirror import Told
from streamer.features.pair.state import Written
from streamer.features.pair.wire import (
    heartbeat_from_proto,
    heartbeat_to_proto,
    origin_from_proto,
    origin_to_proto,
    state_from_proto,
    state_to_proto,
    told_from_proto,
    told_to_proto,
)
from streamer.journal.entries import Batch, Letter, Mark, Row, Segment
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from tests.examples import characters

texts = st.text(characters, max_size=8)
bodies = st.binary(max_size=20)
integers = st.integers(-(1 << 63), (1 << 63) - 1)  # as SQLite has them
counts = st.integers(0, (1 << 64) - 1)
numbers = st.lists(integers, max_size=3)

rows = st.builds(Row, integers, texts, texts, texts, integers, integers, texts, bodies)
segments = st.builds(Segment, integers, texts, bodies)
letters = st.builds(
    Letter,
    number=integers,
    id=st.binary(min_size=16, max_size=16),
    route=texts,
    ingress=texts,
    target=texts,
    outcome=texts,
    code=integers,
    text=texts,
    attempts=integers,
    first_ms=integers,
    last_ms=integers,
    type=integers,
    source=texts,
    sink=texts,
    body=bodies,
)
batches = st.builds(
    Batch,
    st.lists(rows, max_size=3),
    st.lists(segments, max_size=3),
    st.lists(letters, max_size=3),
    numbers,
    numbers,
    numbers,
    numbers,
    st.lists(st.builds(Mark, integers, integers, st.none() | integers), max_size=3),
)
values = st.none() | integers | texts | bodies | st.floats(allow_nan=False)
statements = st.lists(st.tuples(texts, st.lists(values, max_size=3).map(tuple)), max_size=3)
lineages = st.lists(texts, max_size=2).map(tuple)
written = st.builds(Written, counts, statements, st.booleans(), st.booleans(), lineages)
heartbeats = st.builds(
    Heartbeat,
    texts,
    *[counts, counts, counts, st.booleans(), counts, counts, st.booleans(), st.floats(0, 60)],
    integers,
    integers,
)
claims = st.builds(CopyClaim, texts, texts, counts, integers, counts)
origins = st.builds(Origin, texts, texts, counts, counts, claims, counts)
told = st.builds(
    Told, counts, st.just(Batch()) | batches, st.booleans(), st.booleans(), counts, st.booleans(), st.none() | origins
)

STRANGE = "\0a\0\r\n'\"\u202e\ufeff\U0010ffff"
"""A text that programs stumble over: NULs, line ends, quotes, another direction, the last character that there is."""


@given(heartbeats)
def test_a_heartbeat_is_read_as_it_was_said(heartbeat: Heartbeat) -> None:
    frame = pb.Frame.FromString(pb.Frame(heartbeat=heartbeat_to_proto(heartbeat)).SerializeToString())
    assert frame.WhichOneof("content") == "heartbeat"
    assert heartbeat_from_proto(frame.heartbeat) == heartbeat


@given(origins)
def test_an_origin_is_read_as_it_was_said(origin: Origin) -> None:
    assert origin_from_proto(pb.Origin.FromString(origin_to_proto(origin).SerializeToString())) == origin
    assert tuple(field.name for field in pb.Origin.DESCRIPTOR.fields) == Origin._fields
    assert tuple(field.name for field in pb.Claim.DESCRIPTOR.fields) == CopyClaim._fields


@given(told)
def test_a_batch_is_read_as_it_was_written(told: Told) -> None:
    frame = pb.Frame.FromString(pb.Frame(batch=told_to_proto(told)).SerializeToString())
    assert frame.WhichOneof("content") == "batch"
    assert told_from_proto(frame.batch) == told


@given(written)
def test_what_a_service_has_written_is_read_as_it_was(written: Written) -> None:
    frame = pb.Frame.FromString(pb.Frame(state=state_to_proto(written)).SerializeToString())
    assert frame.WhichOneof("content") == "state"
    read = state_from_proto(frame.state)
    assert read == written
    for (_, values), (_, expected) in zip(read.statements, written.statements, strict=True):
        assert list(map(type, values)) == list(map(type, expected))


def test_texts_of_strangers_arrive_whole() -> None:
    letter = Letter(1, bytes(16), STRANGE, STRANGE, STRANGE, STRANGE, 3, STRANGE, 1, 2, 3, 4, STRANGE, STRANGE, b"\0")
    row = Row(-1, STRANGE, STRANGE, STRANGE, 5, -3, STRANGE, b"\0\xff")
    batch = Batch(rows=[row], segments=[Segment(7, STRANGE, b"")], letters=[letter])
    assert told_from_proto(pb.Batch.FromString(told_to_proto(Told(1, batch)).SerializeToString())).batch == batch


def test_every_field_of_the_journals_entries_has_one_here() -> None:
    """One that is added there and forgotten here would be missing after a take-over."""
    for entry, message in (
        (Row, pb.Row),
        (Segment, pb.Segment),
        (Letter, pb.Letter),
        (Mark, pb.Mark),
        (Heartbeat, pb.Heartbeat),
    ):
        assert entry._fields == tuple(field.name for field in message.DESCRIPTOR.fields)
    marks = {"number", "is_snapshot_begin", "is_snapshot_end", "position", "is_complete", "origin"}
    assert (
        set(Batch.__slots__) - {"facts", "renumbered", "kept"}
        == {field.name for field in pb.Batch.DESCRIPTOR.fields} - marks
    )
