"""Rows on the wire: what is read is what was packed, in few bytes."""

import pytest

from streamer.features.host.rpc import MAX_BYTES
from streamer.features.live_audit.rows import MAX_ROWS, Part, facing, packed, read
from streamer.features.live_audit.sums import AWAY, FlowClass, IdCipher, Sum
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uuid import new_id
from tests.clock import START_MS

MINUTE = START_MS // 60_000
VIN = "1hgbh41jxmn109186.vehicles.example"


def some(number: int) -> Sum:
    return Sum(number, IdCipher().fold(b"".join(new_id(START_MS) for _ in range(number))))


def test_what_is_packed_is_read() -> None:
    both = some(300)
    parts: list[Part] = [
        (FlowClass("veh1", "", 0xA8000, 2, 0x8A50), MINUTE, {AWAY: both, 1: both, AWAY + 3: some(2)}),
        (FlowClass("veh1", "", 0xA8000, 2, 0x8A50), MINUTE + 1, {AWAY: some(1)}),
        (FlowClass("veh1", "cloud"), MINUTE, {0: some(1), 1: some(1)}),
        (FlowClass("cloud", "veh1", 1, 1, 0x8000), MINUTE, {1: some(2**40 % 7)}),
    ]
    (rows,) = packed(7, 3, parts)
    assert (rows.run, rows.number) == (7, 3)
    assert sorted(read(rows), key=str) == sorted(parts, key=str)


def test_many_rows_become_several_messages_with_numbers() -> None:
    passed = some(300)
    parts: list[Part] = [
        (FlowClass(VIN, "", 1, 1, 0x8000 + each), MINUTE, {AWAY: passed, 1: passed, AWAY + 2: some(2)})
        for each in range(100)
    ]
    messages = list(packed(7, 3, parts))
    assert [(rows.number, len(rows.classes)) for rows in messages] == [(3, MAX_ROWS), (4, MAX_ROWS), (5, 100 - 2 * MAX_ROWS)]
    assert [part for rows in messages for part in read(rows)] == parts
    assert max(rows.ByteSize() for rows in messages) < MAX_BYTES


def test_a_class_takes_60_bytes_a_busy_minute() -> None:
    parts: list[Part] = []
    for each in range(10):
        passed = some(600 + each)
        parts.append((FlowClass(VIN, "", 0xA8000, 2, 0x8A50 + each), MINUTE, {AWAY: passed, 1: passed}))
    (rows,) = packed(START_MS, 100_000, parts)
    assert len(rows.SerializeToString()) <= 60 * len(parts)


@pytest.mark.parametrize("each", [pb.AuditClass(source=1), pb.AuditClass(sink=9)])
def test_an_authority_that_is_not_there_is_an_error(each: pb.AuditClass) -> None:
    with pytest.raises(IndexError):
        list(read(pb.AuditRows(authorities=["a"], classes=[each])))


def test_a_row_faces_its_receiver() -> None:
    flow, one, two = FlowClass("a", "b"), some(1), some(2)
    sums = {("vehicle", 0): one, ("cloud", 1): one, ("phone", 1): two, ("other", 1): two}
    assert facing((flow, MINUTE, sums), ("cloud",)) == (flow, MINUTE, {AWAY: one, 1: one, AWAY + 1: two.plus(two)})
