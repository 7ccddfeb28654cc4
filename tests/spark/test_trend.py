import datetime as dt

from pyspark.sql import DataFrame, SparkSession

from spark_jobs import counts, dead_letters, outcomes
from spark_jobs.batch import seen_from
from spark_jobs.session import small_frame
from spark_jobs.tables import DEAD_LETTERS, OUTCOMES_TABLE, ROUTE_HOURLY, TREND_DAYS
from tests.spark.traces import DATE, at

TODAY = [("gateway", "up", "veh1", None, "delivered", "OK", 30, 3), ("gateway", "up", "veh1", "cloud", "expired", "X", 5, 1)]


def seen(past: DataFrame) -> DataFrame:
    return seen_from(past, [DATE], -TREND_DAYS, -1)


def before(days: int) -> dt.date:
    return DATE - dt.timedelta(days=days)


def test_usual_is_the_mean_over_the_days_on_which_the_streamer_wrote(spark: SparkSession) -> None:
    schema = counts.OUTCOME_COUNTS.ddl
    new = ("hub", "up", "veh1", None, "delivered", "OK", 7, 1)
    today = small_frame(spark, [(DATE, *row) for row in (*TODAY, new)], schema)
    past = small_frame(
        spark,
        [
            (before(1), "gateway", "up", "veh1", None, "delivered", "OK", 10, 9),
            (before(3), "gateway", "up", "veh1", None, "delivered", "OK", 20, 9),
            (before(3), "gateway", "up", "veh1", None, "delivered", "NOT OK", 1000, 9),
            (before(1), "hub", "down", "veh1", None, "delivered", "OK", 4, 9),
        ],
        schema,
    )
    hours = [(before(1), 3, "gateway"), (before(1), 4, "gateway"), (before(3), 3, "gateway"), (before(4), 3, "gateway"),
             (before(1), 3, "hub"), (before(2), 3, "hub")]  # fmt: skip
    past_hours = small_frame(spark, hours, "date DATE, hour INT, streamer STRING")
    made = outcomes.transform(today, seen(past), seen(past_hours)).select(*OUTCOMES_TABLE.columns)
    assert {tuple(row) for row in made.collect()} == {
        (DATE, *TODAY[0], 10.0, 3, 2.0),  # (10 + 20 + 0) / 3
        (DATE, *TODAY[1], 0.0, 3, None),  # never before: there is no relative change from 0
        (DATE, *new, 0.0, 2, None),
    }


def test_without_any_day_before_there_is_no_usual(spark: SparkSession) -> None:
    today = small_frame(spark, [(DATE, *row) for row in TODAY], counts.OUTCOME_COUNTS.ddl)
    made = outcomes.transform(today, seen(today.limit(0)), seen(small_frame(spark, [], ROUTE_HOURLY.ddl)))
    assert {(row.messages, row.usual, row.days, row.change) for row in made.collect()} == {
        (30, None, 0, None),
        (5, None, 0, None),
    }


def test_dead_letters_keep_their_times_and_know_their_trend(spark: SparkSession) -> None:
    schema = counts.DEAD_LETTER_COUNTS.ddl
    key = ("gateway", "up", "expired", "X", "veh1", 1, "cloud", 9)
    other = ("gateway", "up", "expired", "X", "veh1", 1, None, None)
    first, last = at("07:00"), at("09:00")
    today = small_frame(spark, [(DATE, *key, 3, 30, first, last), (DATE, *other, 1, 1, first, first)], schema)
    yesterday = [(before(1), *each, 2, 999, at("01:00", before(1)), at("23:00", before(1))) for each in (key, other)]
    past_hours = small_frame(spark, [(before(1), 3, "gateway")], "date DATE, hour INT, streamer STRING")
    made = dead_letters.transform(today, seen(small_frame(spark, yesterday, schema)), seen(past_hours)).select(
        *DEAD_LETTERS.columns
    )
    plain = [at.replace(tzinfo=None) for at in (first, last)]
    assert {tuple(row) for row in made.collect()} == {
        (DATE, *key, 3, 30, *plain, 2.0, 1, 0.5),
        (DATE, *other, 1, 1, plain[0], plain[0], 2.0, 1, -0.5),
    }
