"""Translates between the types of a pair and the protobuf messages of package `ustreamer.pair.v1`.

Pure. Frames of the link are authentic, so their fields are not checked.
"""

from streamer.features.pair.disk import CopyClaim, Origin
from streamer.features.pair.lease import Heartbeat
from streamer.features.pair.mirror import Told
from streamer.features.pair.state import Written
from streamer.journal.entries import Batch, Letter, Mark, Row, Segment
from streamer.uprotocol.proto import pair_v1_pb2 as pb


def heartbeat_to_proto(heartbeat: Heartbeat) -> pb.Heartbeat:
    """Convert a heartbeat to protobuf."""
    return pb.Heartbeat(**heartbeat._asdict())


def heartbeat_from_proto(p: pb.Heartbeat) -> Heartbeat:
    """Convert a heartbeat from protobuf."""
    return Heartbeat(*(getattr(p, field) for field in Heartbeat._fields))


def claim_to_proto(claim: CopyClaim) -> pb.Claim:
    """Convert a claim to protobuf."""
    return pb.Claim(**claim._asdict())


def claim_from_proto(p: pb.Claim) -> CopyClaim:
    """Convert a claim from protobuf."""
    return CopyClaim(p.disk, p.run, p.seen, p.has, p.epoch)


def origin_to_proto(origin: Origin) -> pb.Origin:
    """Convert an origin to protobuf."""
    return pb.Origin(**origin._replace(claim=claim_to_proto(origin.claim))._asdict())  # type: ignore[arg-type]


def origin_from_proto(p: pb.Origin) -> Origin:
    """Convert an origin from protobuf."""
    return Origin(p.disk, p.run, p.epoch, p.proves_below, claim_from_proto(p.claim), p.top)


def told_to_proto(told: Told) -> pb.Batch:
    """Convert a batch that is sent to protobuf."""
    batch, origin = told.batch, told.origin
    return pb.Batch(
        number=told.number,
        is_snapshot_begin=told.is_first,
        is_snapshot_end=told.is_last,
        position=told.position,
        is_complete=told.is_complete,
        origin=None if origin is None else origin_to_proto(origin),
        rows=[pb.Row(**row._asdict()) for row in batch.rows],
        segments=[pb.Segment(**segment._asdict()) for segment in batch.segments],
        letters=[pb.Letter(**letter._asdict()) for letter in batch.letters],
        rows_done=batch.rows_done,
        segments_done=batch.segments_done,
        letters_done=batch.letters_done,
        letters_unmarked=batch.letters_unmarked,
        letters_marked=[pb.Mark(**mark._asdict()) for mark in batch.letters_marked],
    )


def told_from_proto(p: pb.Batch) -> Told:
    """Convert a batch that was sent from protobuf."""
    origin = origin_from_proto(p.origin) if p.HasField("origin") else None
    batch = Batch(
        rows=[Row(*(getattr(row, field) for field in Row._fields)) for row in p.rows],
        segments=[Segment(each.number, each.target, each.body) for each in p.segments],
        letters=[Letter(*(getattr(letter, field) for field in Letter._fields)) for letter in p.letters],
        rows_done=list(p.rows_done),
        segments_done=list(p.segments_done),
        letters_done=list(p.letters_done),
        letters_unmarked=list(p.letters_unmarked),
        letters_marked=[
            Mark(mark.number, mark.redrive_ms, mark.ttl_ms if mark.HasField("ttl_ms") else None) for mark in p.letters_marked
        ],
    )
    return Told(p.number, batch, p.is_snapshot_begin, p.is_snapshot_end, p.position, p.is_complete, origin)


def state_to_proto(written: Written) -> pb.State:
    """Convert a transaction of the tables to protobuf."""
    statements = [
        pb.Statement(sql=sql, parameters=[_value_to_proto(each) for each in parameters])
        for sql, parameters in written.statements
    ]
    ends = {"is_first": written.is_first, "is_last": written.is_last}
    return pb.State(number=written.number, **ends, statements=statements, lineage=written.lineage)


def state_from_proto(p: pb.State) -> Written:
    """Convert a transaction of the tables from protobuf."""
    statements = [(each.sql, tuple(map(_value_from_proto, each.parameters))) for each in p.statements]
    return Written(p.number, statements, p.is_first, p.is_last, tuple(p.lineage))


def _value_to_proto(value: object) -> pb.Value:
    match value:
        case None:
            return pb.Value()
        case int():
            return pb.Value(integer=value)
        case str():
            return pb.Value(text=value)
        case bytes():
            return pb.Value(blob=value)
        case float():
            return pb.Value(real=value)
    raise AssertionError(f"a {type(value).__name__} is no value of SQLite")


def _value_from_proto(p: pb.Value) -> object:
    content = p.WhichOneof("content")
    return None if content is None else getattr(p, content)
