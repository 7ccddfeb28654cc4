"""A Publish is addressed on networks that want it: one copy for each authority, and no address once it is further on."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.sightings import audited, seen
from tests.spark.traces import at

pytestmark = pytest.mark.long

ADDRESS = {"sink_ue_id": 0xFFFFFFFF, "sink_ue_version": 0xFF, "sink_resource_id": 0xFFFF}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> tuple[list[Any], list[Any]]:
    records = []
    for number in range(12):
        made = at(f"10:{number:02}")
        records += [seen("a", made, number, sink_authority=to, **ADDRESS) for to in ("cloud", "plant")]
        records += [seen("b", made, number, 4_000)]
        records += [seen("c", made, number, 5_000)] if number != 7 else []
    records += [seen("b", at("23:00"), 98), seen("c", at("23:00"), 99)]  # their records go on
    audit, detail = audited(spark, records)
    return audit.collect(), detail.collect()


def test_copies_for_several_authorities_are_one_message_and_none_is_a_second_delivery(tables: Any) -> None:
    audit, _ = tables
    counts = {(row.sink_authority, row.status): (row.messages, row.copies) for row in audit}
    assert sum(messages for messages, _ in counts.values()) == 14
    assert {sink for sink, _ in counts} == {None}
    assert {copies for _, copies in counts.values()} == {0}


def test_one_way_that_leads_nowhere_is_a_finding(tables: Any) -> None:
    _, detail = tables
    assert [(row.finding, row.missing_at) for row in detail] == [("lost", "c")]
