"""The daemon writes a trace record of every message that crosses, and its metrics say so; what it wrote survives a kill."""

import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.e2e.topology import Topology
from tests.independent.message import Plain, uuid7

COUNT = 300


def messages(here: str, there: str) -> list[Plain]:
    return [Plain(4, (here, 1, 1, 0x8001), (there, 2, 1, 0), b"%d" % number, id=uuid7()) for number in range(COUNT)]


def records(traces: Path) -> list[dict[str, Any]]:
    return [
        row
        for file in traces.glob("date=*/hour=*/streamer=gw/part-*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]


async def test_every_message_that_crosses_is_traced_once(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    async with Topology("zenoh", "mqtt/off-vehicle", trace={"path": str(traces)}) as topology:
        sent = {}
        for direction, (here, there) in enumerate((("alpha", "beta"), ("beta", "alpha"))):
            sent[here] = messages(here, there)
            await topology.exchange(direction, sent[here])
        await topology.daemon.until_total(2 * COUNT, "ustreamer_outcomes_total", outcome="delivered")
        await topology.daemon.until_total(2 * COUNT, "ustreamer_trace_written_records_total")
        assert topology.daemon.total("ustreamer_trace_up") == 1
        assert topology.daemon.total("ustreamer_trace_dropped_records_total") == 0
        topology.daemon.signal(signal.SIGTERM)
        assert await topology.daemon.ended() == 0
    rows = records(traces)
    assert sorted(row["seq"] for row in rows) == list(range(2 * COUNT))
    for here, ingress, egress in (("alpha", "zenoh", "mqtt5"), ("beta", "mqtt5", "zenoh")):
        mine = [row for row in rows if row["src_authority"] == here]
        assert {row["msg_id"] for row in mine} == {message.id for message in sent[here]}
        assert {(row["ingress_transport"], row["egress_transport"], row["outcome"]) for row in mine} == {
            (ingress, egress, "delivered")
        }


async def test_what_was_written_before_a_kill_is_compacted_by_the_next_start(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    async with Topology("mqtt/in-vehicle", "mqtt/off-vehicle", trace={"path": str(traces)}) as topology:
        await topology.exchange(0, messages("alpha", "beta"))
        await topology.daemon.until_total(COUNT, "ustreamer_trace_written_records_total")
        assert records(traces) == []
        topology.daemon.signal(signal.SIGKILL)
        await topology.daemon.ended()
        topology.daemon.start()
        await topology.daemon.until_total(COUNT, "ustreamer_trace_parquet_records_total")
        assert sorted(row["seq"] for row in records(traces)) == list(range(COUNT))
