"""The comparison of a fleet, as a stream over files of rows."""

import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from pyspark.sql import SparkSession

from spark_jobs.live_audit.__main__ import PUBLIC_KEY, stream

pytestmark = pytest.mark.long

MINUTE = 29_500_000
NOW_MS = MINUTE * 60_000
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("streamer", "source", "sink")),
        *((name, pa.int64()) for name in ("heard_ms", "run", "number", "ue_id", "minute", "messages")),
        *((name, pa.int32()) for name in ("ue_version", "resource")),
        ("what", pa.list_(pa.int32())),
        ("ids", pa.binary()),
    ]
)
_ENCRYPT = Cipher(AES(PUBLIC_KEY), ECB()).encryptor().update
TAKEN_IN, DELIVERED, EXPIRED, AWAY = 0, 1, 3, 8


def ids(number: int, start: int = 0, minute: int = MINUTE) -> list[bytes]:
    """Ids of messages of a minute."""
    first = (minute * 60_000 << 80) | 7 << 76 | 2 << 62
    return [(first + start + each).to_bytes(16, "big") for each in range(number)]


def row(streamer: str, number: int, what: int, several: list[bytes], heard_s: float = 60, **changes: Any) -> dict[str, Any]:
    total = 0
    for each in several:
        total ^= int.from_bytes(_ENCRYPT(each), "big")
    found = {"streamer": streamer, "heard_ms": NOW_MS + round(heard_s * 1000), "run": 1, "number": number}
    found |= {"source": "veh1", "sink": "cloud", "ue_id": 0, "ue_version": 0, "resource": 0, "minute": MINUTE}
    return found | {"what": [what], "messages": len(several), "ids": total.to_bytes(16, "big")} | changes


class Found(NamedTuple):
    batch: int
    streamer: str
    verdict: str
    messages: int
    id: str | None
    was: str


class Fleet:
    """A hub and gateways, each of which has reported for longer than it takes to be sure."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.files = 0

    def run(self, *rows: dict[str, Any]) -> None:
        """Hear some rows, and compare."""
        (self.folder / "rows").mkdir(exist_ok=True)
        early = [] if self.files else [row(name, 0, TAKEN_IN, [], -600) for name in ("hub", "gw1", "gw2")]
        pq.write_table(pa.Table.from_pylist([*early, *rows], SCHEMA), self.folder / f"rows/{self.files}.parquet")
        self.files += 1
        stream(self.spark, str(self.folder / "rows"), str(self.folder / "out"), ["hub"])

    def later(self, number: int, seconds: float = 150) -> None:
        """Let time pass, in which everybody is heard of."""
        self.run(*(row(name, number, TAKEN_IN, [], seconds) for name in ("hub", "gw1")))

    @property
    def found(self) -> list[Found]:
        rows = self.spark.read.parquet(str(self.folder / "out/findings")).orderBy("batch", "streamer").collect()
        return [Found(*(each[name] for name in Found._fields)) for each in rows]

    @property
    def kept(self) -> int:
        """How many sums of open minutes the last batch has kept."""
        return self.spark.read.parquet(str(self.folder / f"out/_state/open/{(self.files - 1) % 2}")).count()


@pytest.fixture
def fleet(spark: SparkSession, tmp_path: Path) -> Fleet:
    return Fleet(spark, tmp_path)


def test_one_lost_message_is_named_and_equal_minutes_are_forgotten(fleet: Fleet) -> None:
    sent = ids(100)
    topic: dict[str, Any] = {"sink": "", "ue_id": 0xA8000, "resource": 0x8A50}
    fleet.run(
        row("gw1", 1, DELIVERED, sent),
        row("gw1", 1, DELIVERED, sent, **topic),
        row("hub", 1, AWAY + TAKEN_IN, sent[:40] + sent[41:]),
        row("hub", 1, AWAY + TAKEN_IN, sent, **topic),
    )
    assert fleet.found == []  # nothing has been quiet for long enough
    fleet.later(2)
    assert fleet.found == [Found(1, "gw1", "lost", 1, str(uuid.UUID(bytes=sent[40])), "")]
    assert fleet.kept == 2  # those of the class that is not equal


def test_a_late_row_makes_a_loss_good_and_a_copy_of_it_changes_nothing(fleet: Fleet) -> None:
    sent = ids(100)
    late = row("hub", 3, AWAY + TAKEN_IN, sent[90:], 200)
    fleet.run(row("gw1", 1, DELIVERED, sent), row("hub", 1, AWAY + TAKEN_IN, sent[:90]))
    fleet.later(2)
    fleet.run(late, late)
    fleet.run(late, row("gw1", 1, DELIVERED, sent))
    fleet.later(4, 400)
    assert [each[1:] for each in fleet.found] == [("gw1", "lost", 10, None, ""), ("", "equal", 0, None, "lost")]


def test_what_expired_where_it_came_is_no_loss_and_what_is_lost_beside_it_is_named(fleet: Fleet) -> None:
    sent, other = ids(100), ids(10, 500)
    fleet.run(
        row("gw1", 1, DELIVERED, sent),
        row("hub", 1, AWAY + TAKEN_IN, sent[:95]),
        row("hub", 1, AWAY + EXPIRED, sent[95:]),
        row("gw2", 1, DELIVERED, other, source="veh2"),
        row("hub", 1, AWAY + TAKEN_IN, other[:7], source="veh2"),
        row("hub", 1, AWAY + EXPIRED, other[7:9], source="veh2"),
    )
    fleet.later(2)
    assert [each[1:] for each in fleet.found] == [("gw2", "lost", 1, None, "")]


@pytest.mark.parametrize("gap", [False, True])
def test_differences_are_unknown_while_a_row_is_missing(fleet: Fleet, gap: bool) -> None:
    sent = ids(10)
    fleet.run(row("gw1", 1, DELIVERED, sent), row("hub", 2 if gap else 1, AWAY + TAKEN_IN, sent[:9]))
    fleet.later(3 if gap else 2)
    assert [each.verdict for each in fleet.found] == ["unknown" if gap else "lost"]
    if gap:
        fleet.run(row("hub", 1, AWAY + TAKEN_IN, sent[9:], 200))
        fleet.later(4, 400)
        assert [each[2:] for each in fleet.found] == [("unknown", 1, None, ""), ("equal", 0, None, "unknown")]


def test_a_gateway_that_does_not_report_is_unknown_and_not_lost(fleet: Fleet) -> None:
    fleet.run(row("hub", 1, AWAY + TAKEN_IN, ids(5)))
    fleet.later(2)
    assert fleet.found == []  # it may come
    fleet.later(3, 700)
    assert [each.verdict for each in fleet.found] == ["unknown"]
    fleet.later(4, 90_000)
    assert fleet.kept == 0  # after a day it is forgotten


def test_orders_that_do_not_come_down_and_several_gateways_of_one_class(fleet: Fleet) -> None:
    sent = ids(20)
    fleet.run(
        row("hub", 1, AWAY + DELIVERED, sent, source="cloud", sink="veh1"),
        row("gw1", 1, TAKEN_IN, sent[:19], source="cloud", sink="veh1"),
        row("gw1", 1, DELIVERED, sent[:12]),
        row("gw2", 1, DELIVERED, sent[12:]),
        row("hub", 1, AWAY + TAKEN_IN, sent),
    )
    fleet.later(2)
    assert fleet.found == [Found(1, "gw1", "lost", 1, str(uuid.UUID(bytes=sent[19])), "")]
