"""The format of the tables, as the command line says it."""

from typing import Any

from pyspark.sql import SparkSession

from spark_jobs import iceberg_tables
from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.storage import Storage
from spark_jobs.table_store import TableStore


def packages(chosen: Any) -> str | None:
    """What Spark's launcher must get for the format. `chosen` has what `arguments.add_format` adds. Raises CatalogError."""
    return iceberg_tables.packages() if chosen.format == "iceberg" else None


def tables(chosen: Any, spark: SparkSession, storage: Storage) -> TableStore:
    """The tables in that format. Raises CatalogError."""
    if chosen.format == "iceberg":
        return iceberg_tables.IcebergTables(spark, iceberg_tables.catalog_of(chosen.catalog, storage, chosen.output))
    return ParquetTables(spark, chosen.output)
