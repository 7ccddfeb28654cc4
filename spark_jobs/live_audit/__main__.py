"""The stream: ``python -m spark_jobs.live_audit --input ROWS --output FOLDER --hub AUTHORITY [--hub …] [--follow]``.

Each batch reads what the one before has kept, and writes its findings into a folder with its number: one that is repeated
after a failure writes the same anew. The time is the latest at which any row was heard.
"""

import argparse
import hashlib
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_jobs.live_audit.compare import findings, judged
from spark_jobs.live_audit.rows import KEY, OPEN, ROWS, STREAMERS, added, taken
from spark_jobs.session import session

PUBLIC_KEY = b"live audit key 1"  # of streamers without `live_audit.key_file`


def stream(
    spark: SparkSession, rows: str, output: str, hubs: list[str], *, follow: bool = False, key: bytes = PUBLIC_KEY
) -> None:
    """Compare everything that is there; with ``follow``, go on once a minute until the process ends."""
    work = partial(_batch, output=output, hubs=hubs, id_of=sf.udf(partial(message_id, key), "string", useArrow=False))
    files = spark.readStream.schema(ROWS).parquet(rows)
    writer = files.writeStream.foreachBatch(work).option("checkpointLocation", f"{output}/_checkpoint")
    (writer.trigger(processingTime="1 minute") if follow else writer.trigger(availableNow=True)).start().awaitTermination()


def _batch(rows: DataFrame, number: int, output: str, hubs: list[str], id_of: Callable[..., Column]) -> None:
    spark = rows.sparkSession

    def path(name: str, of: int) -> str:
        return f"{output}/_state/{name}/{of % 2}"  # the one before stays, if this batch has to be repeated

    def kept(name: str, schema: str) -> DataFrame:
        return spark.read.schema(schema).parquet(path(name, number - 1)) if number else spark.createDataFrame([], schema)

    new, following = taken(rows, kept("streamers", STREAMERS))
    following.write.mode("overwrite").parquet(path("streamers", number))
    streamers = spark.read.schema(STREAMERS).parquet(path("streamers", number))
    latest = streamers.agg(sf.max("heard_ms")).first()
    sums = added(new, kept("open", OPEN)).persist()
    entries = judged(sums, streamers, hubs, (latest and latest[0]) or 0).persist()
    found = findings(entries).withColumn("id", id_of("high", "low", "minute")).drop("high", "low")
    found.write.mode("overwrite").parquet(f"{output}/findings/batch={number}")
    going_on = entries.filter(~sf.col("is_over")).select(*KEY, "verdict", sf.col("told").alias("before"))
    told = sf.when(sf.col("verdict") == "open", sf.col("before")).otherwise(sf.col("verdict")).alias("told")
    left = sums.drop("told").join(going_on, list(KEY)).select(*sums.drop("told").columns, told)
    left.write.mode("overwrite").parquet(path("open", number))
    for each in (sums, entries):
        each.unpersist()


def message_id(key: bytes, high: str | None, low: str | None, minute: int) -> str | None:
    """Return the id of the only message of a difference; None: it is not one id of that minute."""
    if high is None or low is None:
        return None
    found = uuid.UUID(bytes=Cipher(AES(key), ECB()).decryptor().update(bytes.fromhex(high + low)))
    return str(found) if found.version == 7 and (found.int >> 80) // 60_000 == minute else None


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stream."""
    parser = argparse.ArgumentParser(prog="python -m spark_jobs.live_audit", description="Compare the rows of a fleet.")
    parser.add_argument("--input", required=True, metavar="ROWS", help="the folder with the rows, in Parquet files")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="for findings, and what is kept between batches")
    parser.add_argument("--hub", required=True, action="append", help="a streamer that all others send to; may be repeated")
    parser.add_argument("--key-file", type=Path, help="live_audit.key_file of the streamers")
    parser.add_argument("--follow", action="store_true", help="go on, once a minute; otherwise end when everything is read")
    given = parser.parse_args(argv)
    key = PUBLIC_KEY if given.key_file is None else hashlib.sha256(given.key_file.read_bytes().strip()).digest()
    stream(session("ustreamer live audit"), given.input, given.output, given.hub, follow=given.follow, key=key)


if __name__ == "__main__":
    main()
