"""Did each route keep what was promised?"""

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_jobs import job, latency, slo_file, traffic
from spark_jobs.batch import Batch
from spark_jobs.schema import FAILURES
from spark_jobs.tables import LATENCY_DAILY, ROUTE_HOURLY, SLO

_OWN = "^(none$|(core|dead-letter|rpc-error)/)"
"""The streamer's own routes: ``none``, and ``core/NAME``, ``dead-letter/NAME`` and ``rpc-error/NAME`` of each endpoint. A
target applies to them only if its route names them: ``dead-letter/*`` does, ``*`` does not."""

_NOTHING = slo_file.Target("", "", "", "availability", 0.5)
_DIGITS = 9
"""Budgets are rounded to so many digits: otherwise 1 − 1 / (1000 × (1 − 0.999)) would be 1e-13."""


def transform(hourly: DataFrame, daily: DataFrame, targets: Sequence[slo_file.Target]) -> DataFrame:
    """`tables.ROUTE_HOURLY` and `tables.LATENCY_DAILY` of some dates, and the targets → `tables.SLO`.

    Messages that were delivered or failed are judged (for latency: those that were delivered). A route without any has no
    row. A target that is reached exactly is met.
    """
    failed = sum((sf.col(outcome) for outcome in FAILURES), sf.lit(0))
    counted = hourly.withColumn("failed", failed).groupBy("date", "streamer", "route")
    counts = counted.agg(*(sf.sum(name).alias(name) for name in ("delivered", "failed", "expired")))
    latencies = daily.where(sf.col("measure") == "latency").select("date", "streamer", "route", "p99_us")
    keys = ["date", "streamer", "route"]
    routes = counts.where(sf.col("delivered") + sf.col("failed") > 0).join(latencies, keys, "left")
    if not targets:
        return routes.where(sf.lit(False)).select(*keys, sf.inline(sf.array(_judged(_NOTHING))))
    return routes.select(*keys, sf.inline(sf.array_compact(sf.array(*map(_judged, targets)))))


def _judged(target: slo_file.Target) -> Column:
    """What became of the target on a route; null if it does not apply."""
    delivered, failed, expired = sf.col("delivered"), sf.col("failed"), sf.col("expired")
    messages = delivered + failed
    promised = sf.lit(target.target).cast("double")
    matching = _matches("streamer", target.streamer) & _matches("route", target.route)
    if not re.match(_OWN, target.route):
        matching &= ~sf.col("route").rlike(_OWN)
    if target.objective == "p99_latency_ms":
        matching &= delivered > 0
        actual, messages, left = sf.col("p99_us") / 1000, delivered, sf.lit(None)
        met = actual <= promised
    elif target.objective == "availability":
        actual, left = delivered / messages, 1 - failed / (messages * (1 - promised))
        met = actual >= promised
    else:
        actual, left = expired / messages, 1 - expired / (messages * promised)
        met = actual <= promised
    judged = sf.struct(
        sf.lit(target.name).alias("name"),
        sf.lit(target.objective).alias("objective"),
        promised.alias("target"),
        actual.alias("actual"),
        met.alias("met"),
        sf.round(left.cast("double"), _DIGITS).alias("budget_left"),
        messages.alias("messages"),
    )
    return sf.when(matching, judged)


def _matches(column: str, pattern: str) -> Column:
    return sf.col(column).rlike(slo_file.regex(pattern)) if "*" in pattern else sf.col(column) == pattern


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    targets = slo_file.load(batch.slo).targets
    return (transform(batch.table(ROUTE_HOURLY), batch.table(LATENCY_DAILY), targets),)


JOB = job.Job("slo", (SLO,), compute, needs=(traffic.JOB, latency.JOB))
