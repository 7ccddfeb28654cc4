from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_jobs import latency, rollup
from tests.spark.traces import frame, record

SHARES = {"p50_us": (1, 2), "p90_us": (9, 10), "p95_us": (95, 100), "p99_us": (99, 100), "p999_us": (999, 1000)}


def percentile(values: list[int], share: tuple[int, int]) -> int:
    """The smallest value that at least that share of the values does not exceed, by counting."""
    numerator, denominator = share
    return min(value for value in values if sum(other <= value for other in values) * denominator >= numerator * len(values))


def daily(records: DataFrame) -> DataFrame:
    return latency.transform_daily(records, rollup.transform(records))


def hourly(records: DataFrame) -> DataFrame:
    return latency.transform(records, rollup.transform(records))


def test_daily_percentiles_are_of_delivered_messages_and_each_measure(spark: SparkSession) -> None:
    records = [record(latency_us=us, queue_wait_us=us // 10) for us in range(10, 1010, 10)]
    records += [record(latency_us=10**9, outcome="expired"), record(latency_us=5, queue_wait_us=None, route="down")]
    found = {(row.route, row.measure): row for row in daily(frame(spark, records)).collect()}
    assert found.keys() == {("up", "latency"), ("up", "queue_wait"), ("down", "latency")}
    names = ["messages", "min_us", "p50_us", "p90_us", "p95_us", "p99_us", "p999_us", "max_us"]
    assert [found["up", "latency"][name] for name in names] == [100, 10, 500, 900, 950, 990, 1000, 1000]
    assert [found["up", "queue_wait"][name] for name in names] == [100, 1, 50, 90, 95, 99, 100, 100]
    assert [found["down", "latency"][name] for name in names] == [1, 5, 5, 5, 5, 5, 5, 5]


@settings(max_examples=2)
@given(
    routes=st.lists(
        st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**40)), min_size=1, max_size=60), min_size=18, max_size=36
    )
)
def test_exact_percentiles_equal_a_plain_reference(spark: SparkSession, routes: list[list[int]]) -> None:
    # Many routes in one frame: each is an example of its own, for the price of one run.
    records = [record(route=str(number), latency_us=us) for number, values in enumerate(routes) for us in values]
    found = daily(frame(spark, records)).where("measure = 'latency'").collect()
    assert {int(row.route): {name: row[name] for name in SHARES} for row in found} == {
        number: {name: percentile(values, share) for name, share in SHARES.items()} for number, values in enumerate(routes)
    }


def test_a_thousand_values_have_a_last_but_one_per_mille(spark: SparkSession) -> None:
    """0.999 × 1000 is above 999 in floating point, which would give the maximum."""
    records = [record(latency_us=us) for us in range(1, 1001)]
    (row,) = daily(frame(spark, records)).where("measure = 'latency'").collect()
    assert (row.p99_us, row.p999_us, row.max_us) == (990, 999, 1000)


def test_hourly_sketches_tell_percentiles_and_merge(spark: SparkSession) -> None:
    # Fewer values than the sketch's k: it holds them all, so it must be exact.
    first = [record("07:10", latency_us=us, queue_wait_us=2 * us) for us in range(1, 101)]
    second = [record("08:10", latency_us=us, queue_wait_us=None) for us in range(101, 301)]
    lost = [record("07:20", latency_us=10**9, outcome="expired", queue_wait_us=None)]
    hours = hourly(frame(spark, [*first, *second, *lost])).orderBy("hour")
    columns = ["hour", "messages", "latency_p50_us", "latency_p99_us", "queue_wait_p50_us", "queue_wait_p99_us"]
    assert [tuple(row) for row in hours.select(columns).collect()] == [
        (7, 100, 50, 99, 100, 198),
        (8, 200, 200, 298, None, None),
    ]
    merged = hours.agg(
        sf.kll_merge_agg_bigint("latency_sketch").alias("all"), sf.kll_merge_agg_bigint("queue_wait_sketch").alias("q")
    )
    (row,) = merged.select(
        sf.kll_sketch_get_n_bigint("all"),
        sf.kll_sketch_get_quantile_bigint("all", sf.lit(0.5)),
        sf.kll_sketch_get_n_bigint("q"),
    ).collect()
    assert tuple(row) == (300, 150, 100)


def test_merged_sketches_of_many_values_stay_within_their_error(spark: SparkSession) -> None:
    values = spark.range(40_000).withColumn("part", sf.col("id") % 4)
    parts = values.groupBy("part").agg(sf.kll_sketch_agg_bigint("id", latency.SKETCH_K).alias("sketch"))
    quantile = sf.kll_sketch_get_quantile_bigint(sf.kll_merge_agg_bigint("sketch"), sf.array(sf.lit(0.5), sf.lit(0.99)))
    median, p99 = parts.agg(quantile).collect()[0][0]
    # k = 800 promises a rank error of 0.33 % with 99 % confidence; three times that cannot fail by chance
    assert abs(median - 20_000) <= 400
    assert abs(p99 - 39_600) <= 400


def test_no_delivered_message_no_row(spark: SparkSession) -> None:
    records = frame(spark, [record(outcome="expired")])
    assert hourly(records).collect() == []
    assert daily(records).collect() == []


def test_reference_percentile_by_hand() -> None:
    assert percentile([10, 20, 30, 40], (1, 2)) == 20
    assert percentile([10, 20, 30, 40], (9, 10)) == 40
