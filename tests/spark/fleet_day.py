"""A day of a fleet: one gateway in the cloud and one in each vehicle, with planted faults that the jobs have to find.

    cloud ── gateway.cloud ──┬── gateway.v0001 ── v0001
                             ├── gateway.v0002 ── v0002
                             …

Every vehicle sends to the cloud and gets messages from it. Now and then the cloud publishes something to all of them: a
*broadcast*. Each gateway's clock is off by a few ms. The last third of the vehicles has the next version and another
configuration, which is slower. Some lose their link to the cloud for a while. Files are as `write` writes them, but fewer:
each gateway is busy in `HOURS` only. The truth goes to ``_truth/truth.json``.
"""

import datetime as dt
import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from spark_jobs.generate.write import schema
from spark_jobs.schema import EVENT

CLOUD = "gateway.cloud"
HOURS = (8, 10)
"""The hours of the day in which something is sent."""
_HOUR_S = 3600
_TRANSIT_US = 2_000
_OFFLINE_S = (1200, 2400)
"""From when until when in the first of `HOURS` the links are down: the first of them, the others some seconds later."""
_OFFLINE_STEP_S = 7
_CONNECTED_US = 2_000_000
"""So long after the start, the endpoints are up."""
OLD, NEW = ("1.4.0", False, "aaaaaaaaaaaa"), ("1.5.0", True, "bbbbbbbbbbbb")
"""Version, form and configuration of the first two thirds of the vehicles, and of the cloud; and of the last third."""
LATENCY_US = {OLD: 400, NEW: 1_400}
_EDGE_S = 60
"""So long before the end of an hour, the last message of it is made."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fleet:
    """What to plant. ``gateways`` includes the one in the cloud.

    ``broadcasts``: so many in the first of `HOURS` reach every vehicle. ``partial`` more, in the last of them, do not reach
    the last third of the vehicles. ``offline``: the links of so many vehicles to the cloud are down for twenty minutes.
    """

    date: dt.date
    gateways: int
    each_way: int = 6
    """Messages to and from each vehicle."""
    lost: int = 5
    rejected: int = 3
    broadcasts: int = 0
    partial: int = 0
    offline: int = 0
    skew_max_ms: int = 50
    seed: int = 1


def of_records(date: dt.date, gateways: int, records: int) -> Fleet:
    """A fleet with about so many records, a third of them of broadcasts."""
    per_gateway = max(3, records // gateways // 6)
    return Fleet(date, gateways, per_gateway, broadcasts=per_gateway, partial=per_gateway // 2, offline=gateways // 10)


def generate_fleet(fleet: Fleet, output: Path) -> dict[str, Any]:
    """Write the traces of a fleet's day below `output`. Returns the truth.

    ``findings``: ids of messages by finding. ``missing_at``: the gateway that lacks each lost message. ``lacking``: the
    gateways without the partial broadcasts. ``skew_us``: by gateway. ``records``: how many. ``offline``: of each
    gateway, when its link was down and up by its clock.
    """
    played = _Day(fleet)
    records = [*played.single(), *played.broadcasts()]
    _write(records, output)
    _write_events(played.events(), output)
    skew_us = played.skew_us
    offline = {name: (down_us + skew_us[name], up_us + skew_us[name]) for name, (down_us, up_us) in played.offline.items()}
    truth = played.truth | {"records": len(records), "skew_us": skew_us, "offline": offline}
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
        self._new = {f"gateway.{vehicle}" for vehicle in self._vehicles[len(self._vehicles) * 2 // 3 :]}
        most_us = fleet.skew_max_ms * 1000
        self.skew_us = {name: int(self._rng.integers(-most_us, most_us + 1)) for name in names}
        self.truth: dict[str, Any] = {"findings": {"lost": [], "rejected": []}, "missing_at": {}, "lacking": []}
        self._start_us = int(dt.datetime.combine(fleet.date, dt.time(), dt.UTC).timestamp()) * 1_000_000
        self._number = 0
        hour_us = self._start_us + HOURS[0] * _HOUR_S * 1_000_000
        self.offline: dict[str, tuple[int, int]] = {}
        """From when until when the link of a gateway to the cloud is down, by no clock's error."""
        for number, name in enumerate(names[1 : 1 + fleet.offline]):
            down_us, up_us = (hour_us + (each + number * _OFFLINE_STEP_S) * 1_000_000 for each in _OFFLINE_S)
            self.offline[name] = down_us, up_us

    def cohort(self, name: str) -> tuple[str, bool, str]:
        """Version, form and configuration of a gateway."""
        return NEW if name in self._new else OLD

    def events(self) -> Iterator[Record]:
        """What the gateways tell of themselves, each by its clock."""
        for name, skew_us in self.skew_us.items():
            ends = {"cloud": "zenoh", "downlink": "mqtt5"} if name == CLOUD else {"uplink": "mqtt5", "vehicle": "zenoh"}
            told: list[tuple[int, str, str | None, str | None]] = [(self._start_us, "started", None, None)]
            told += [(self._start_us, "down", end, "started") for end in ends]
            told += [(self._start_us + _CONNECTED_US, "up", end, None) for end in ends]
            if name in self.offline:
                down_us, up_us = self.offline[name]
                told += [(down_us + skew_us, "down", "uplink", "no signal"), (up_us + skew_us, "up", "uplink", None)]
            for seq, (ts_us, event, endpoint, reason) in enumerate(told):
                yield {
                    "ts": ts_us,
                    "seq": seq,
                    "run_ts": self._start_us,
                    "event": event,
                    "endpoint": endpoint,
                    "transport": ends.get(endpoint) if endpoint else None,
                    "reason": reason,
                    "streamer": name,
                } | _columns_of(self.cohort(name))

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
            for hop in range(1 if fault else 2):
                yield self._seen(about, path, made_us, hop, is_up, fault == "rejected")

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
                    yield self._seen(about, (CLOUD, name), made_us, min(hop, 1), False, False)

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

    def _seen(self, about: Record, path: tuple[str, str], made_us: int, hop: int, is_up: bool, is_rejected: bool) -> Record:
        """The record of one gateway of two. The cloud's endpoints are ``cloud`` and ``downlink``, a vehicle's ``uplink`` and
        ``vehicle``."""
        name = path[hop]
        ends = [("cloud", "zenoh"), ("downlink", "mqtt5")] if name == CLOUD else [("uplink", "mqtt5"), ("vehicle", "zenoh")]
        (ingress, egress) = ends[::-1] if is_up else ends
        transit_us = int(self._rng.exponential(_TRANSIT_US)) + 500
        true_us = made_us + 1_000 + hop * transit_us
        latency_us = LATENCY_US[self.cohort(name)]
        if hop == 0:
            latency_us += self._waits_us(name, true_us)
        else:  # it comes when the links on both of its sides are up
            true_us += self._waits_us(path[0], made_us + 1_000) + (0 if is_up else self._waits_us(name, true_us))
        ts_us = true_us + self.skew_us[name]
        return (
            about
            | {
                "ts": ts_us,
                "ingress": ingress[0],
                "egress": egress[0],
                "ingress_transport": ingress[1],
                "egress_transport": egress[1],
                "age_us": ts_us - made_us,
                "queue_wait_us": 100,
                "latency_us": latency_us,
                "retries": 0,
                "outcome": "rejected" if is_rejected else "delivered",
                "ucode": "PERMISSION_DENIED" if is_rejected else "OK",
                "redelivered": False,
                "run_ts": self._start_us,
                "streamer": name,
            }
            | _columns_of(self.cohort(name))
        )

    def _waits_us(self, name: str, true_us: int) -> int:
        """For how long a message waits for the link of a gateway to the cloud."""
        down_us, up_us = self.offline.get(name, (0, 0))
        return up_us - true_us if down_us <= true_us < up_us else 0


def _columns_of(cohort: tuple[str, bool, str]) -> Record:
    return dict(zip(("version", "compiled", "config"), cohort, strict=True))


def _write_events(events: Iterator[Record], output: Path) -> None:
    """One file per gateway, beside the records."""
    of_gateway: dict[str, list[Record]] = defaultdict(list)
    for each in events:
        of_gateway[each["streamer"]].append(each)
    plain: pa.Schema = to_arrow_schema(EVENT, timezone="UTC")
    for name, rows in of_gateway.items():
        at = dt.datetime.fromtimestamp(rows[0]["ts"] // 1_000_000, dt.UTC)
        id_ = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        _write_file(rows, plain, output / "_events" / f"date={at.date()}" / f"streamer={name}" / f"events-{id_}.parquet")


def _write(records: Sequence[Record], output: Path) -> None:
    """One file per gateway and hour, with `seq` in the order of the outcomes."""
    files: dict[tuple[str, int], list[Record]] = {}
    seq: dict[str, int] = {}
    for each in sorted(records, key=lambda record: record["ts"]):
        name = each["streamer"]
        each["seq"] = seq[name] = seq.get(name, -1) + 1
        files.setdefault((name, each["ts"] // (_HOUR_S * 1_000_000)), []).append(each)
    for (name, hour), rows in files.items():
        at = dt.datetime.fromtimestamp(hour * _HOUR_S, dt.UTC)
        folder = output / f"date={at.date()}" / f"hour={at.hour}" / f"streamer={name}"
        _write_file(rows, schema(), folder / "part-0.parquet")


def _write_file(rows: Sequence[Record], plain: pa.Schema, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in plain]
    pq.write_table(pa.table(columns, schema=plain), path, compression="zstd")
