"""The Spark session of the jobs: sets what their results depend on, and nothing that belongs to the place where they run.

No master is named: `spark-submit` and `spark-defaults.conf` decide, and plain Python falls to Spark's own ``local[*]``.
"""

import os
import sys

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from spark_jobs import java

_RESULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has neither statistics nor a zone
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.files.ignoreMissingFiles": "false",  # a file that vanished under a run must fail it, not shrink its figures
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}

_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",  # 200, made for a cluster, is all overhead on a few cores
}
"""Set for a local master only, and only where nobody has said anything else."""


def session(name: str = "ustreamer nightly") -> SparkSession:
    """The session of this process, made at the first call. Raises `java.JavaMissingError`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._gateway is None:  # else spark-submit runs the JVM
        os.environ["JAVA_HOME"] = str(java.home())
    SparkContext._ensure_initialized()  # only with its JVM does SparkConf know spark-defaults and spark-submit's options
    conf = SparkConf()
    for key, value in _RESULTS.items():
        conf.set(key, value)
    if (conf.get("spark.master") or "local[*]").startswith("local"):
        for key, value in _LOCAL.items():
            conf.setIfMissing(key, value)
    spark = SparkSession.builder.appName(name).config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
