"""One small Spark session for all tests of the jobs."""

import os
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from spark_jobs.session import session

_SMALL = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",  # compiling costs more than a few rows do
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # nor single expressions
    "spark.default.parallelism": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["TZ"] = "UTC"  # collected timestamps come in the zone of the process
    time.tzset()
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        " ".join(f'--conf "{key}={value}"' for key, value in _SMALL.items()) + " pyspark-shell"
    )
    started = session("tests", small=True)
    started.range(1).collect()  # warm
    yield started
    started.stop()
