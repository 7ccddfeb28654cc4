"""Tables of a fleet made by hand, with planted faults: what the report has to say of hundreds of streamers.

One gateway in the cloud and the others in vehicles, each with the routes ``up`` and ``down``. All faults are of vehicles
whose numbers `Faults` names; every other vehicle is well.
"""

import datetime as dt
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs import tables
from spark_jobs.schema import OUTCOMES
from tests.spark.report_tables import at, put

CLOUD = "gateway.cloud"
HOURS = (7, 8, 12, 17)
_EACH = 25
"""Messages of a route in one of the `HOURS`."""


def vehicle(number: int) -> str:
    return f"gateway.v{number:04d}"


@dataclass(frozen=True, slots=True)
class Faults:
    """Numbers of vehicles, each with how much of it."""

    lost_up: dict[int, int]
    lost_down: dict[int, int]
    failed: dict[int, int]
    lacking: dict[int, int]
    missing: dict[int, int]
    left_out: dict[int, int]
    skew_ms: dict[int, float]
    unmet: tuple[int, ...]
    silent: dict[int, int]
    """For how many days before this one it has not written either."""
    rare: tuple[int, ...]
    """Silent, too, but they wrote on one of the days before only."""
    newer: tuple[int, ...]
    """They run the next version."""
    offline_s: dict[int, float]
    """One link each was down for so long; half an hour before it came up again, if that was within the day."""
    stopped: tuple[int, ...]
    """They have no record after 17:59."""


PLANTED = Faults(
    lost_up={3: 11},
    lost_down={5: 4},
    failed={7: 60, 8: 20},
    lacking={9: 2, 10: 1},
    missing={11: 404},
    left_out={12: 3},
    skew_ms={13: 3_600_000.0},
    unmet=(7, 14),
    silent={2: 0, 6: 1},
    rare=(15,),
    newer=(7, 8),
    offline_s={16: 5400.0, 7: 86_400.0, 17: 12.5},
    stopped=(18, 19),
)
NONE = Faults({}, {}, {}, {}, {}, {}, {}, (), {}, (), (), {}, ())


def _hour(at_hour: int, streamer: str, route: str, messages: int, failed: int = 0) -> dict[str, Any]:
    counts = dict.fromkeys(OUTCOMES, 0) | {"delivered": messages - failed, "expired": failed}
    ends: dict[str, Any] = {"ingress": "a", "egress": "b", "retries": 0, "redelivered": messages // 50}
    return (
        {"hour": at_hour, "streamer": streamer, "route": route, "messages": messages, "bytes": messages * 90} | ends | counts
    )


def make_fleet(root: Path, vehicles: int, faults: Faults = PLANTED, days: int = 4) -> None:
    """Write the tables of the day and of ``days`` before it, of which the last one has half of the messages."""
    numbers = range(1, vehicles + 1)
    for back in reversed(range(days + 1)):
        here = [n for n in numbers if back > faults.silent.get(n, -1) and (n not in faults.rare or back == days)]
        each = _EACH if back < days else _EACH // 2
        planted = faults if back == 0 else NONE
        rows = []
        for hour in HOURS:
            for n in here:
                failed = planted.failed.get(n, 0) // len(HOURS)
                rows += [_hour(hour, vehicle(n), "up", each), _hour(hour, vehicle(n), "down", each, failed)]
            total = each * len(here)
            rows += [_hour(hour, CLOUD, "from-vehicles", total), _hour(hour, CLOUD, "to-vehicles", total)]
        put(root, tables.ROUTE_HOURLY, rows, back)
        put(root, tables.STREAMER_HEALTH, _health(here, 2 * each * len(HOURS), planted, back), back)
        put(root, tables.DELIVERY_AUDIT, _audit(each * len(HOURS) * len(here), planted), back)
        put(root, tables.DELIVERY_AUDIT_DETAIL, _detail(planted), back)
        put(root, tables.TTL_MARGIN, _margins(here, planted), back)
        put(root, tables.DEAD_LETTERS, _letters(planted), back)
    put(root, tables.FAN_OUT, _fan_out(vehicles, faults))
    put(root, tables.FAN_OUT_MISSING, [_topic() | {"streamer": vehicle(n), "publishes": 3, "missing": m, "hour": 8}
                                       for n, m in faults.lacking.items()])  # fmt: skip
    put(root, tables.SLO, _slo(here, faults))
    put(root, tables.COHORTS, _cohorts(here, faults))
    put(root, tables.LINK_SESSIONS, _links(faults))
    put(root, tables.COMPLETENESS, _completeness(here, faults))
    put(root, tables.ANOMALIES, [])
    _speed(root, here)


def _speed(root: Path, here: list[int]) -> None:
    routes = [(vehicle(n), route, 20 + n % 7) for n in here for route in ("up", "down")]
    routes += [(CLOUD, "from-vehicles", 9), (CLOUD, "to-vehicles", 14)]
    count = {"up": _EACH, "down": _EACH}
    daily, hourly = [], []
    for streamer, route, ms in routes:
        messages = count.get(route, _EACH * len(here)) * len(HOURS)
        ranks = {"min_us": 900, "p50_us": ms * 1000, "p90_us": ms * 2000, "p95_us": ms * 2500, "p99_us": ms * 9000}
        ranks |= {"p999_us": ms * 20_000, "max_us": ms * 40_000}
        name: dict[str, Any] = {"streamer": streamer, "route": route}
        daily += [name | {"measure": m, "messages": messages} | ranks for m in ("latency", "queue_wait")]
        hourly += [name | {"hour": hour, "messages": messages // len(HOURS), "latency_p50_us": ms * 1000,
                           "latency_p99_us": ms * 9000} for hour in HOURS]  # fmt: skip
    put(root, tables.LATENCY_DAILY, daily)
    put(root, tables.LATENCY, hourly)


def _health(here: list[int], records: int, faults: Faults, back: int) -> list[dict[str, Any]]:
    day = dt.timedelta(days=back)
    usual = {"runs": 1, "restarts": 0, "gaps": 0, "records_missing": 0, "missing_hours": "9,10,11,13,14,15,16"}
    usual |= {"first_ts": at("07:00:01") - day, "last_ts": at("17:59:58") - day, "skew_messages": 90, "files_left_out": 0}
    rows = [usual | {"streamer": CLOUD, "records": records * len(here)}]
    for n in here:
        missing = faults.missing.get(n, 0)
        rows.append(
            usual
            | {"streamer": vehicle(n), "records": records, "clock_skew_ms": faults.skew_ms.get(n, n % 9 - 4.0)}
            | {"skew_against": CLOUD, "records_missing": missing, "gaps": int(missing > 0)}
            | {"files_left_out": faults.left_out.get(n, 0)}
        )
    return rows


def _audit(made: int, faults: Faults) -> list[dict[str, Any]]:
    lost = {f"v{n:04d}": number for n, number in faults.lost_up.items()}
    down = {f"v{n:04d}": number for n, number in faults.lost_down.items()}
    all_ = {"src_authority": "v0001", "sink_authority": "cloud", "msg_type": "request", "copies": 0}
    rows = [all_ | {"status": "delivered", "messages": made, "latency_max_us": 770_000}]
    rows += [all_ | {"src_authority": name, "status": "lost", "messages": number} for name, number in lost.items()]
    return rows + [
        all_ | {"src_authority": "cloud", "sink_authority": name, "status": "lost", "messages": number}
        for name, number in down.items()
    ]


def _detail(faults: Faults) -> list[dict[str, Any]]:
    rows = []
    for n, number, is_up in [*((n, m, True) for n, m in faults.lost_up.items()),
                             *((n, m, False) for n, m in faults.lost_down.items())]:  # fmt: skip
        ends = [f"v{n:04d}", "cloud"] if is_up else ["cloud", f"v{n:04d}"]
        seen, unseen = (vehicle(n), CLOUD) if is_up else (CLOUD, vehicle(n))
        rows += [
            {
                "finding": "lost",
                "msg_id": uuid.UUID(int=n << 64 | place).bytes,
                "msg_ts": at("08:00:00"),
                "msg_type": "request",
            }
            | {"src_authority": ends[0], "src_ue_id": 2, "src_resource_id": 0, "sink_authority": ends[1], "sink_ue_id": 3}
            | {"sink_resource_id": 7, "streamers": seen, "last_streamer": seen, "missing_at": unseen}
            | {"last_route": "up" if is_up else "to-vehicles", "msg_type": "request", "copies": 0}
            for place in range(number)
        ]
    return rows


def _margins(here: list[int], faults: Faults) -> list[dict[str, Any]]:
    base = {"late": 0, "under_10": 0, "under_25": 0, "under_50": 2, "least_margin_ms": 800}
    return [
        base | {"streamer": vehicle(n), "route": "down", "messages": 98, "over_50": 96, "expired": faults.failed.get(n, 0)}
        for n in here
    ]


def _letters(faults: Faults) -> list[dict[str, Any]]:
    base = {"route": "down", "outcome": "expired", "ucode": "DEADLINE_EXCEEDED", "src_authority": "cloud", "src_ue_id": 2}
    base |= {"sink_ue_id": 3, "bytes": 900, "first_ts": at("07:10:00"), "last_ts": at("17:10:00")}
    return [
        base | {"streamer": vehicle(n), "sink_authority": f"v{n:04d}", "messages": number}
        for n, number in faults.failed.items()
    ]


def _topic() -> dict[str, Any]:
    return {"src_authority": "cloud", "src_ue_id": 0x8001, "src_resource_id": 0x8000}


def _fan_out(vehicles: int, faults: Faults) -> list[dict[str, Any]]:
    gone, expected = sum(faults.lacking.values()), 3 * vehicles
    row = _topic() | {"hour": 8, "publishes": 3, "gateways": vehicles, "unknown": 0, "expected": expected, "missing": gone}
    return [row | {"share": 1 - gone / expected, "lacking": len(faults.lacking)}]


def _slo(here: list[int], faults: Faults) -> list[dict[str, Any]]:
    base = {"name": "default", "objective": "availability", "target": 0.99, "messages": 100}
    return [
        base | {"streamer": vehicle(n), "route": "down"}
        | ({"actual": 0.4, "met": False, "budget_left": -59.0} if n in faults.unmet else
           {"actual": 1.0, "met": True, "budget_left": 1.0})
        for n in here
    ]  # fmt: skip


def _cohorts(here: list[int], faults: Faults) -> list[dict[str, Any]]:
    rows = []
    for version, numbers in (("1.4.0", [n for n in here if n in faults.newer]),
                             ("1.3.2", [n for n in here if n not in faults.newer])):  # fmt: skip
        for route in ("up", "down") if numbers else ():
            failed = sum(faults.failed.get(n, 0) for n in numbers) if route == "down" else 0
            lost = sum(faults.lost_up.get(n, 0) for n in numbers) if route == "up" else 0
            due = _EACH * len(HOURS) * len(numbers)
            counts = dict.fromkeys(OUTCOMES, 0) | {"delivered": due - failed, "expired": failed}
            ranks = {"latency_p50_us": 20_000, "latency_p99_us": 900_000 if version == "1.4.0" else 180_000}
            rows.append(
                {"version": version, "compiled": True, "config": "0123456789abcdef", "route": route}
                | {"streamers": len(numbers), "messages": due, "bytes": due * 90, "lost": lost}
                | counts
                | ranks
                | {"redelivered": 0}
            )
    return rows


def _links(faults: Faults) -> list[dict[str, Any]]:
    rows = []
    for n, offline_s in faults.offline_s.items():
        down, is_whole = at("00:00:00") if offline_s == 86_400 else at("08:00:00"), offline_s == 86_400
        rows.append(
            {"streamer": vehicle(n), "endpoint": "cloud", "transport": "mqtt5", "down_ts": down, "offline_s": offline_s}
            | {"up_ts": None if is_whole else down + dt.timedelta(seconds=offline_s), "reason": "connection refused"}
            | {"version": "1.3.2", "config": "0123", "piled_up": 31, "piled_up_bytes": 2790}
            | {"drain_s": None if is_whole else offline_s / 1000}
        )
    return rows


def _completeness(here: list[int], faults: Faults) -> list[dict[str, Any]]:
    rows = []
    for n in here:
        for hour in range(24):
            seen = 2 * _EACH if hour in HOURS else 0
            missing = faults.missing.get(n, 0) if hour == 8 else 0
            until: dt.datetime | None = at(f"{hour:02}:00:00") + dt.timedelta(hours=1)
            if n in faults.stopped and hour >= 17:
                until = None if hour > 17 else at("17:59:58")
            if missing:
                until = at("08:12:00")
            left_out = faults.left_out.get(n, 0) if hour == 8 else 0
            rows.append(
                {"streamer": vehicle(n), "hour": hour, "expected": seen + missing, "seen": seen, "complete_until": until}
                | {"files_left_out": left_out}
            )
    return rows
