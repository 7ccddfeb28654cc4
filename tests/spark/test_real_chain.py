"""Two daemons in a row and a broker between them that is killed: the audit's numbers are those of the load's own ledger."""

import datetime as dt
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import delivery_audit
from spark_jobs.batch import Batch
from tests.fault.chain import RECEIVE_MAXIMUM, Chain

pytestmark = pytest.mark.long

BETWEEN = 150


@pytest.mark.mosquitto
async def test_audit_finds_what_a_broker_lost_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    async with Chain(tmp_path, seed=1) as chain:
        chain.load(600)
        await chain.until_arrived(200)
        await chain.lose_what_is_between(BETWEEN)
        await chain.until_arrived(600)  # a second: what was lost is judged only if it is well before the last of its topic
        await chain.finish()
        lost = {entry.id for entry in chain.ledger.missing()}
        figures = chain.ledger.figures()
        sent = chain.ledger.entries()
    assert len(lost) >= BETWEEN - RECEIVE_MAXIMUM, "the broker was to lose what it held"
    assert figures["acknowledged"] == figures["sent"]
    made = {dt.datetime.fromtimestamp(int.from_bytes(entry.id[:6]) / 1000, dt.UTC).date() for entry in sent}
    found: Counter[str] = Counter()
    details = []
    for date in made:  # two of them around midnight
        batch = Batch(spark, str(chain.traces), str(tmp_path / "tables"), (date,), reach=(1, 1))
        # nothing is on its way any more, so there is nothing to wait for
        audit, detail = delivery_audit.transform(batch.records(1, 1), batch.sightings, [date], batch.keep, grace_us=0)
        for row in audit.collect():
            found[row.status] += row.messages
        details += detail.collect()
        batch.release()
    assert found == {"delivered": figures["arrived"], "lost": len(lost)}
    assert {bytes(row.msg_id) for row in details if row.finding == "lost"} == lost
    assert {(row.last_streamer, row.missing_at) for row in details} == {("gw.one", "gw.two")}
