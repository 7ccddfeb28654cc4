"""The Spark session of the jobs: sets what their results depend on, and nothing that depends on where they run.

No master is named: `spark-submit` and `spark-defaults.conf` decide; plain Python gets Spark's default, ``local[*]``.
"""

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_jobs import java, jvm
from spark_jobs.arrow import arrow_schema

_RESULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has neither statistics nor a time zone
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.files.ignoreMissingFiles": "false",  # if a file disappears, the run must fail, not lower its figures
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}

_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.sql.maxPlanStringLength": "0",  # no texts of the plans, which nobody sees
    "spark.sql.ui.explainMode": "simple",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # each column would look for its line in the script, for errors
    "spark.sql.shuffle.partitions": "8",  # the default of 200 is for clusters; on a few cores it is all overhead
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # what is kept is read once or twice: not worth it
    "spark.sql.limit.initialNumPartitions": "1000",  # what is collected with a limit is collected at once, not by and by
    "spark.hadoop.fs.permissions.umask-mode": "027",  # Hadoop's own is 022, whatever that of the process: open to everybody
}
"""Set for a local master only, where nothing else is configured."""

_SMALL = {
    "spark.sql.adaptive.enabled": "false",  # planning anew after each stage is half of the stages and a third of the time
    "spark.sql.shuffle.partitions": "2",
    "spark.ustreamer.small": "true",  # for `is_small`
}
"""The same, for small input only."""

_LIGHT = {
    **_SMALL,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""For queries of few rows: to compile their code takes longer than to interpret it."""

_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=192m -XX:InitialRAMPercentage=5"
"""For small input: the optimizing compiler takes half of the CPU time of such a run, and is done when the run is. Room for
Spark's classes, and a heap of 5 % of the memory, from the start: whenever one of them grows, the whole heap is collected.
Compiled code has the room of both compilers: with one it is 48 MB, of which a night fills 40; with Iceberg Java ended."""


_DIRECTIVES = Path(__file__).with_name("compiler.json")
"""For large input: what does not run for each record is not worth the optimizing compiler."""

_FEW_CORES = 4
"""So few keep one thread of the collector busy, and then the serial one takes the least time and memory."""


def session(name: str = "ustreamer nightly", *, small: bool = False) -> SparkSession:
    """The session of this process, created at the first call. Raises `java.JavaMissingError`.

    `small`: a local master is tuned for small input. It gives the same results with large input, but later.
    """
    if is_remote():
        return _given(name)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not jvm.is_running():
        os.environ["JAVA_HOME"] = str(java.home())
        os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(_java_options(small)))
    # The bars of Spark's progress would stand between our lines.
    results = {**_RESULTS, "spark.ui.showConsoleProgress": "false"}
    spark = jvm.start(results, {**_LOCAL, **(_SMALL if small else {})}, name)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def is_remote() -> bool:
    """Whether the session is one of Spark Connect: of a server, which is configured there."""
    return "SPARK_REMOTE" in os.environ or "SPARK_CONNECT_MODE_ENABLED" in os.environ


def _given(name: str) -> SparkSession:
    """The session of a server of Spark Connect, with what results depend on. What is static there stays as it is."""
    spark = SparkSession.builder.appName(name).getOrCreate()
    for key, value in _RESULTS.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    return spark


def _java_options(small: bool) -> list[str]:
    options = [_SMALL_JVM] if small else []
    if not small and _DIRECTIVES.is_file():  # there is none in a zip
        options += ["-XX:+UnlockDiagnosticVMOptions", f'"-XX:CompilerDirectivesFile={_DIRECTIVES}"']
    if (small or (os.cpu_count() or 1) <= _FEW_CORES) and not _chosen_collector():
        options.append("-XX:+UseSerialGC")
    return options


def _chosen_collector() -> bool:
    """Whether a collector is named where Java or Spark is configured. Java does not start with two of them."""
    set_ = [os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "PYSPARK_SUBMIT_ARGS")]
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or f"{home}/conf", "spark-defaults.conf")
    set_.append(defaults.read_text() if defaults.is_file() else "")
    return re.search(r"-XX:\+Use\w+GC\b", " ".join(set_)) is not None


def is_small(spark: SparkSession) -> bool:
    """Whether the session is tuned for small input: a single task may then do what would be shared out otherwise."""
    return spark.conf.get("spark.ustreamer.small", "false") == "true"


@cache
def light(spark: SparkSession) -> SparkSession:
    """The session for queries of few rows. With Spark Connect, the same: its server plans them."""
    if not jvm.is_beside(spark):
        return spark
    beside = spark.newSession()
    for key, value in _LIGHT.items():
        beside.conf.set(key, value)
    return beside


def small_frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]], ddl: str) -> DataFrame:
    """Rows that the driver has computed. Through Arrow: for a list, Spark would start Python workers."""
    if not rows and not jvm.is_beside(spark):
        return spark.createDataFrame([], ddl)  # Spark Connect takes no empty table of Arrow's
    schema = arrow_schema(ddl)
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)]
    return spark.createDataFrame(pa.table(arrays, schema=schema))


def broadcast(spark: SparkSession, rows: Sequence[tuple[Any, ...]], ddl: str) -> DataFrame:
    """A `small_frame` that each task gets whole."""
    return sf.broadcast(small_frame(spark, rows, ddl))
