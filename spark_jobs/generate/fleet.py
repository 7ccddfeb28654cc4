"""A day of a fleet: one gateway in the cloud and one in each vehicle, with planted faults that the jobs have to find.

    cloud ── gateway.cloud ──┬── gateway.v0001 ── v0001
                             ├── gateway.v0002 ── v0002
                             …

Every vehicle sends to the cloud and gets messages from it. Now and then the cloud publishes something to all of them: a
*broadcast*. Each gateway's clock is off by a few ms. Files are as `write` writes them, but fewer: each gateway is busy in
`HOURS` only. The truth goes to ``_truth/truth.json``.
"""

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.generate.write import schema

CLOUD = "gateway.cloud"
HOURS = (8, 10)
"""The hours of the day in which something is sent."""
_HOUR_S = 3600
_TRANSIT_US = 2_000
_EDGE_S = 60
"""So long before the end of an hour, the last message of it is made."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fleet:
    """What to plant. ``gateways`` includes the one in the cloud.

    ``broadcasts``: so many in the first of `HOURS` reach every vehicle. ``partial`` more, in the last of them, do not reach
    the last third of the vehicles.
    """

    date: dt.date
    gateways: int
    each_way: int = 6
    """Messages to and from each vehicle."""
    lost: int = 5
    rejected: int = 3
    broadcasts: int = 0
    partial: int = 0
    skew_max_ms: int = 50
    seed: int = 1


def generate_fleet(fleet: Fleet, output: Path) -> dict[str, Any]:
    """Write the traces of a fleet's day below `output`. Returns the truth.

    ``findings``: ids of messages by finding. ``missing_at``: the gateway that lacks each lost message. ``lacking``: the
    gateways without the partial broadcasts. ``skew_us``: by gateway. ``records``: how many.
    """
    played = _Day(fleet)
    records = [*played.single(), *played.broadcasts()]
    _write(records, output)
    truth = played.truth | {"records": len(records), "skew_us": played.skew_us}
    (output / "_truth").mkdir(parents=True, exist_ok=True)
    (output / "_truth" / "truth.json").write_text(json.dumps(truth))
    return truth


class _Day:
    """Plays the day. What is random comes from the fleet's seed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rng = np.random.default_rng(fleet.seed)
        width = len(str(fleet.gateways))
        self._vehicles = [f"v{number:0{width}}" for number in range(1, fleet.gateways)]
        names = [CLOUD, *(f"gateway.{vehicle}" for vehicle in self._vehicles)]
        most_us = fleet.skew_max_ms * 1000
        self.skew_us = {name: int(self._rng.integers(-most_us, most_us + 1)) for name in names}
        self.truth: dict[str, Any] = {"findings": {"lost": [], "rejected": []}, "missing_at": {}, "lacking": []}
        self._start_us = int(dt.datetime.combine(fleet.date, dt.time(), dt.UTC).timestamp()) * 1_000_000
        self._number = 0

    def single(self) -> Iterator[Record]:
        """What goes from one vehicle to the cloud, or from the cloud to one vehicle."""
        fleet = self._fleet
        ways = [(v, is_up, n) for v in self._vehicles for is_up in (True, False) for n in range(fleet.each_way)]
        # Those of the first hour: the gateway that lacks one has to have records long before and after it.
        inner = [place for place, (_, _, n) in enumerate(ways) if 0 < n < fleet.each_way - 1 and n % len(HOURS) == 0]
        chosen = self._rng.permutation(inner)[: fleet.lost + fleet.rejected].tolist()
        faults = dict.fromkeys(chosen[: fleet.lost], "lost") | dict.fromkeys(chosen[fleet.lost :], "rejected")
        for place, (vehicle, is_up, number) in enumerate(ways):
            made_us = self._made_us(number)
            ends = (vehicle, "cloud") if is_up else ("cloud", vehicle)
            path = (f"gateway.{vehicle}", CLOUD) if is_up else (CLOUD, f"gateway.{vehicle}")
            about = self._about(made_us, *ends, f"to-{'cloud' if is_up else 'vehicle'}")
            fault = faults.get(place)
            if fault:
                self.truth["findings"][fault].append(about["msg_id"].hex())
            if fault == "lost":
                self.truth["missing_at"][about["msg_id"].hex()] = path[1]
            for hop, name in enumerate(path[: 1 if fault else 2]):
                yield self._seen(about, name, made_us, hop, is_up, fault == "rejected")

    def broadcasts(self) -> Iterator[Record]:
        """Publishes of the cloud to every vehicle, those that reach two thirds of them last.

        All in the first half of an hour: to lack one, a gateway has to have records long after it.
        """
        fleet = self._fleet
        lacking = {f"gateway.{vehicle}" for vehicle in self._vehicles[len(self._vehicles) * 2 // 3 :]}
        self.truth["lacking"] = sorted(lacking) if fleet.partial else []
        for number in range(fleet.broadcasts + fleet.partial):
            is_partial = number >= fleet.broadcasts
            made_us = self._at_us(HOURS[is_partial], _EDGE_S, _HOUR_S // 2)
            about = self._about(made_us, "cloud", None, "campaigns")
            for hop, name in enumerate(self.skew_us):
                if not (is_partial and name in lacking):
                    yield self._seen(about, name, made_us, min(hop, 1), False, False)

    def _made_us(self, number: int) -> int:
        """When the message of a flow with this number is made: the first and the last one at the ends of the day."""
        if number == 0:
            return self._at_us(HOURS[0], 0, _EDGE_S)
        if number == self._fleet.each_way - 1:
            return self._at_us(HOURS[-1], _HOUR_S - _EDGE_S, _HOUR_S)
        return self._at_us(HOURS[number % len(HOURS)], _EDGE_S, _HOUR_S - _EDGE_S)

    def _at_us(self, hour: int, first_s: int, end_s: int) -> int:
        return self._start_us + (hour * _HOUR_S + int(self._rng.integers(first_s, end_s))) * 1_000_000

    def _about(self, made_us: int, source: str, sink: str | None, route: str) -> Record:
        self._number += 1
        id_ = (made_us // 1000).to_bytes(6) + b"\x70\x00\x80" + self._number.to_bytes(7)
        return {
            "msg_id": id_,
            "msg_ts": made_us,
            "route": route,
            "src_authority": source,
            "src_ue_id": 0x1_2000,
            "src_ue_version": 1,
            "src_resource_id": 0x8000,
            "sink_authority": sink,
            "sink_ue_id": 0x2_3000 if sink else None,
            "sink_ue_version": 1 if sink else None,
            "sink_resource_id": 0 if sink else None,
            "msg_type": "notification" if sink else "publish",
            "priority": "CS1",
            "payload_bytes": 200,
        }

    def _seen(self, about: Record, name: str, made_us: int, hop: int, is_up: bool, is_rejected: bool) -> Record:
        """The record of one gateway. The cloud's endpoints are ``cloud`` and ``downlink``, a vehicle's ``uplink`` and
        ``vehicle``."""
        ends = [("cloud", "zenoh"), ("downlink", "mqtt5")] if name == CLOUD else [("uplink", "mqtt5"), ("vehicle", "zenoh")]
        (ingress, egress) = ends[::-1] if is_up else ends
        transit_us = int(self._rng.exponential(_TRANSIT_US)) + 500
        ts_us = made_us + 1_000 + hop * transit_us + self.skew_us[name]
        return about | {
            "ts": ts_us,
            "ingress": ingress[0],
            "egress": egress[0],
            "ingress_transport": ingress[1],
            "egress_transport": egress[1],
            "age_us": ts_us - made_us,
            "queue_wait_us": 100,
            "latency_us": 400,
            "retries": 0,
            "outcome": "rejected" if is_rejected else "delivered",
            "ucode": "PERMISSION_DENIED" if is_rejected else "OK",
            "redelivered": False,
            "run_ts": self._start_us,
            "streamer": name,
        }


def _write(records: Sequence[Record], output: Path) -> None:
    """One file per gateway and hour, with `seq` in the order of the outcomes."""
    files: dict[tuple[str, int], list[Record]] = {}
    seq: dict[str, int] = {}
    for each in sorted(records, key=lambda record: record["ts"]):
        name = each["streamer"]
        each["seq"] = seq[name] = seq.get(name, -1) + 1
        files.setdefault((name, each["ts"] // (_HOUR_S * 1_000_000)), []).append(each)
    plain = schema()
    for (name, hour), rows in files.items():
        at = dt.datetime.fromtimestamp(hour * _HOUR_S, dt.UTC)
        folder = output / f"date={at.date()}" / f"hour={at.hour}" / f"streamer={name}"
        folder.mkdir(parents=True, exist_ok=True)
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in plain]
        pq.write_table(pa.table(columns, schema=plain), folder / "part-0.parquet", compression="zstd")
