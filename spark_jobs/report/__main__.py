"""``python -m spark_jobs.report --output TABLES --date D --to DIR [--streamer NAME]``."""

import argparse
import datetime
import sys
from collections.abc import Sequence

from spark_jobs import arguments, iceberg_tables, slo_file, tables
from spark_jobs.file_system import ArrowFileSystem
from spark_jobs.iceberg_tables import CatalogError
from spark_jobs.java import JavaMissingError
from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.report import collected, put
from spark_jobs.report.reading import known
from spark_jobs.session import session
from spark_jobs.storage import Storage


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report of one date and print its paths. Returns the exit code: 2 if it cannot begin or be written."""
    parser = argparse.ArgumentParser(
        "python -m spark_jobs.report", description="Write the report of one date as HTML and JSON."
    )
    parser.add_argument("--output", required=True, metavar="TABLES", help="folder of the tables that the jobs wrote")
    parser.add_argument(
        "--date", required=True, type=datetime.date.fromisoformat, metavar="D", help="the UTC date, such as 2026-11-20"
    )
    parser.add_argument(
        "--to",
        required=True,
        metavar="DIR",
        help="folder for the report, anywhere that Spark can write (file:, s3a:, hdfs:, abfs:)",
    )
    arguments.add_format(parser)
    arguments.add_slo(parser)
    parser.add_argument("--streamer", metavar="NAME", help="only what the tables say of this one: a vehicle's gateway")
    given = parser.parse_args(argv)
    arguments.check_format(parser, given)
    try:
        output, is_here = given.output, all(map(ArrowFileSystem().local, (given.output, given.to)))
        spark = None if is_here and given.format == "parquet" else session("ustreamer report", small=True)
        storage = Storage(spark)
        if not storage.exists(output):
            sys.stderr.write(f"there is no folder {output}: expected the tables of the nightly jobs\n")
            return 2
        store = iceberg_tables.chosen(given, spark, storage) if spark else ParquetTables(None, output)
        if not any(given.date in store.dates(table) for table in (tables.TABLES | tables.VIEWS).values()):
            sys.stderr.write(f"{output} has no tables of {given.date}: expected those of the nightly jobs\n")
            return 2
        if given.streamer is not None and not known(store, given.date, given.streamer):
            sys.stderr.write(f"{output} has nothing of {given.streamer!r} on {given.date} or the 14 days before\n")
            return 2
        found = collected(store, given.date, streamer=given.streamer, rules=slo_file.load(given.slo))
        paths = put(storage, found, given.to)
    except (JavaMissingError, CatalogError, OSError, slo_file.SloFileError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    sys.stdout.writelines(f"{path}\n" for path in paths)
    return 0


if __name__ == "__main__":
    sys.exit(main())
