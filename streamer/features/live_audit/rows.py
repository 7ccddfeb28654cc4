"""Rows of the live audit on the wire: the message `AuditRows`. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from streamer.features.live_audit.sums import AWAY, ID_BYTES, FlowClass, Row, Sum, add
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb

MAX_ROWS: Final = 40  # of a message: as many as core.ustreamer takes, unless their names are very long

Part = tuple[FlowClass, int, Mapping[int, Sum]]
"""A row as another streamer tells it: a class, a minute, and the sums by kind, plus `AWAY`."""


def facing(row: Row, towards: Collection[str]) -> Part:
    """Return a row as the streamer gets it that the endpoints ``towards`` lead to."""
    flow, minute, sums = row
    found: dict[int, Sum] = {}
    for (endpoint, kind), each in sums.items():
        add(found, {kind if endpoint in towards else AWAY + kind: each})
    return flow, minute, found


def packed(run: int, number: int, parts: Sequence[Part]) -> Iterator[pb.AuditRows]:
    """Yield the messages for rows; the first one has this number."""
    for start in range(0, len(parts), MAX_ROWS):
        rows = pb.AuditRows(run=run, number=number + start // MAX_ROWS)
        classes: dict[FlowClass, pb.AuditClass] = {}
        places: dict[str, int] = {}
        for flow, minute, sums in parts[start : start + MAX_ROWS]:
            if flow not in classes:
                of = rows.classes.add(ue_id=flow.ue_id, ue_version_major=flow.version, resource_id=flow.resource)
                of.source = places.setdefault(flow.source, len(places))
                if flow.sink:
                    of.sink = places.setdefault(flow.sink, len(places))
                classes[flow] = of
            equal: dict[Sum, list[int]] = {}
            for what, each in sums.items():
                equal.setdefault(each, []).append(what)
            said = classes[flow].minutes.add(minute=minute)
            for each, kinds in equal.items():
                said.sums.add(what=kinds, messages=each.messages, ids=each.ids.to_bytes(ID_BYTES, "big"))
        rows.authorities[:] = places
        yield rows


def read(rows: pb.AuditRows) -> Iterator[Part]:
    """Yield the rows of a message. Raises IndexError."""
    for each in rows.classes:
        sink = rows.authorities[each.sink] if each.HasField("sink") else ""
        flow = FlowClass(rows.authorities[each.source], sink, each.ue_id, each.ue_version_major, each.resource_id)
        for minute in each.minutes:
            yield (
                flow,
                minute.minute,
                {what: Sum(of.messages, int.from_bytes(of.ids[:ID_BYTES], "big")) for of in minute.sums for what in of.what},
            )
