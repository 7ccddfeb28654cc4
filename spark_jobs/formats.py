"""The format of the tables, as the command line says it."""

from typing import Protocol

from pyspark.sql import SparkSession

from spark_jobs import iceberg_tables
from spark_jobs.storage import Storage
from spark_jobs.table_store import ParquetTables, TableStore


class Chosen(Protocol):
    """What `arguments.add_format` adds, and where the output is."""

    @property
    def output(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def catalog(self) -> str | None: ...


def packages(chosen: Chosen) -> str | None:
    """What Spark's launcher must get for the format. Raises CatalogError."""
    return iceberg_tables.packages() if chosen.format == "iceberg" else None


def tables(chosen: Chosen, spark: SparkSession, storage: Storage) -> TableStore:
    """The tables in that format. Raises CatalogError."""
    if chosen.format == "iceberg":
        return iceberg_tables.IcebergTables(spark, iceberg_tables.catalog_of(chosen.catalog, storage, chosen.output))
    return ParquetTables(spark, chosen.output)
