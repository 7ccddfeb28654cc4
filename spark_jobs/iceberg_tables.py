"""The published tables as tables of Apache Iceberg, in a catalogue: readers never see a date that is half replaced.

The dates of a batch are replaced by one commit for each table (overwrite by filter). Who reads meanwhile sees the rows
before or the rows after it, and earlier snapshots stay readable. Two runs at once cannot spoil a table: the second commit
replaces all that the first one wrote on its dates. So there are no staging folders, no renames and no lock.

A date without rows has no partition. That it was published all the same is a property of the table.
"""

import datetime as dt
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_jobs.columns import meaning
from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.storage import Storage, StorageError, reason
from spark_jobs.table_store import TableStore, Written
from spark_jobs.tables import Table

NAMESPACE = "ustreamer"
_OWN = "nightly"
ARCHIVES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0"
"""With which these jobs were tested, on Spark 4.1: there is none for a later one."""
_TRIES = 4
"""Another run may make the two tables of a catalogue and the namespace at the same time: the next try finds them."""
_EMPTY = "ustreamer.published."
"""With a date: a property of tables."""
_SNAPSHOT_DAYS = 30
"""How old snapshots get that `withdraw` keeps."""
_PROPERTIES = {
    "write.distribution-mode": "none",  # the rows come in one task already
    "write.spark.fanout.enabled": "true",  # and need not be sorted by date
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.retry.num-retries": "20",  # of another run's commits between ours
}


class CatalogError(ValueError):
    """The catalogue cannot be used, or Iceberg not be had; the text says why."""


class Catalog(NamedTuple):
    """A catalogue of Spark's. `settings`: how it is set up, below ``spark.sql.catalog.<name>``; None if Spark knows it."""

    name: str
    settings: dict[str, str] | None


def catalog_of(text: str | None, storage: Storage, output: str) -> Catalog:
    """The catalogue that ``--catalog`` names; without, one in a file of SQLite's below `output`. Raises CatalogError."""
    own = {"": "org.apache.iceberg.spark.SparkCatalog", "cache-enabled": "false"}
    if text is None:
        if (here := storage.local(output)) is None:
            raise CatalogError(f"{output} is not on this machine: --format iceberg needs a --catalog for it")
        text = f"jdbc:sqlite:{os.path.abspath(here)}/catalog.sqlite?busy_timeout=60000"
    if text.startswith("jdbc:"):
        return Catalog(_OWN, own | {"type": "jdbc", "uri": text, "warehouse": output, "jdbc.schema-version": "V1"})
    if text.startswith(("http://", "https://")):
        return Catalog(_OWN, own | {"type": "rest", "uri": text})
    return Catalog(text, None)


def chosen(options: Any, spark: SparkSession, storage: Storage) -> TableStore:
    """The tables in the format that the command line names (`arguments.add_format`). Raises CatalogError."""
    if options.format != "iceberg":
        return ParquetTables(spark, options.output)
    return IcebergTables(spark, catalog_of(options.catalog, storage, options.output))


class IcebergTables:
    """Tables in one namespace of a catalogue."""

    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        """Raises CatalogError if the catalogue cannot be reached."""
        self._spark, self._catalog = spark, catalog
        prefix = f"spark.sql.catalog.{catalog.name}"
        if catalog.settings is not None:
            self._settings = {f"{prefix}.{key}" if key else prefix: value for key, value in catalog.settings.items()}
        else:
            self._settings = {key: value for key, value in spark.conf.getAll.items() if f"{key}.".startswith(f"{prefix}.")}
            if prefix not in self._settings:
                raise CatalogError(
                    f"--catalog {catalog.name}: Spark has no such catalogue: expected a name below spark.sql.catalog in its "
                    "configuration, jdbc:…, or https://… of a REST catalogue"
                )
            self._settings[f"{prefix}.cache-enabled"] = "false"  # a cached table is seen as it was before
        if any(spark.conf.get(key, value) != value for key, value in self._settings.items()):
            raise CatalogError("this session of Spark has other tables of Iceberg open: use a session of its own for these")
        for tries_left in reversed(range(_TRIES)):
            try:
                self._knowing(spark).sql(f"CREATE NAMESPACE IF NOT EXISTS {self._namespace}")
                return
            except Exception as error:  # of Spark's, of Java's or of the connection
                if not tries_left:
                    told = (
                        f"the catalogue {catalog.name} of Iceberg cannot be used on Spark {spark.version}: {reason(error)}"
                    )
                    if "SparkCatalog" in told:  # the class is not there
                        told += f": on Spark 4.1, set spark.jars.packages to {ARCHIVES}"
                    raise CatalogError(told) from error

    @property
    def _namespace(self) -> str:
        return f"{self._catalog.name}.{NAMESPACE}"

    def _name(self, table: Table) -> str:
        return f"{self._namespace}.{table.name}"

    def _knowing(self, spark: SparkSession) -> SparkSession:
        """The session, which now knows the catalogue. One made of another knows only what that was started with."""
        for key, value in self._settings.items():
            if spark.conf.get(key, "") != value:
                spark.conf.set(key, value)
        return spark

    def _exists(self, spark: SparkSession, table: Table) -> bool:
        return bool(self._knowing(spark).catalog.tableExists(self._name(table)))

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def publish(self, rows: DataFrame, table: Table, dates: Sequence[dt.date]) -> int:
        spark = self._knowing(rows.sparkSession)
        others = self._prepare(spark, table)
        written = Written(rows, table, dates)
        whole = written.rows.withColumns({name: sf.lit(None).cast(kind) for name, kind in others.items()})
        whole.writeTo(self._name(table)).overwrite(sf.col("date").isin([sf.lit(date) for date in dates]))
        if empty := written.empty:
            self._set(spark, table, empty)
        return written.count

    def _prepare(self, spark: SparkSession, table: Table) -> dict[str, str]:
        """Create the table, or add the columns that it lacks, at its end. Returns those that only a newer version has."""
        if not self._exists(spark, table):
            properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
            columns = ", ".join(_column(table, name) for name in table.columns)
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._name(table)} ({columns}) USING iceberg PARTITIONED BY (date) "
                f"COMMENT {_text(table.question)} TBLPROPERTIES ({properties})"
            )
        found = {field.name: field.dataType.simpleString() for field in spark.table(self._name(table)).schema}
        if lacking := [_column(table, name) for name in table.columns if name not in found]:
            spark.sql(f"ALTER TABLE {self._name(table)} ADD COLUMNS ({', '.join(lacking)})")
        return {name: kind for name, kind in found.items() if name not in table.columns}

    def _set(self, spark: SparkSession, table: Table, dates: Iterable[dt.date]) -> None:
        properties = ", ".join(f"'{_EMPTY}{date}' = 'true'" for date in dates)
        spark.sql(f"ALTER TABLE {self._name(table)} SET TBLPROPERTIES ({properties})")

    def read(self, spark: SparkSession, table: Table, wanted: Iterable[dt.date] | None = None) -> DataFrame:
        if not self._exists(spark, table):
            return spark.range(0).select(*(sf.lit(None).cast(kind).alias(name) for name, kind in table.columns.items()))
        rows = spark.table(self._name(table))
        lacking = {name: sf.lit(None).cast(kind) for name, kind in table.columns.items() if name not in rows.columns}
        rows = rows.withColumns(lacking).select(*table.columns)
        return rows if wanted is None else rows.where(sf.col("date").isin([sf.lit(date) for date in wanted]))

    def size_bytes(self, table: Table, wanted: Iterable[dt.date]) -> int:
        sizes = self._partitions(table)
        return sum(sizes.get(date, 0) for date in wanted)

    def _partitions(self, table: Table) -> dict[dt.date, int]:
        """The dates with rows, each with the size of its files."""
        if not self._exists(self._spark, table):
            return {}
        found = self._spark.table(f"{self._name(table)}.partitions")
        rows = found.select("partition.date", sf.col("total_data_file_size_in_bytes").alias("size")).collect()
        return {row.date: row.size for row in rows}

    def dates(self, table: Table) -> list[dt.date]:
        return sorted({*self._partitions(table), *self._empty(table)})

    def _empty(self, table: Table) -> list[dt.date]:
        if not self._exists(self._spark, table):
            return []
        rows = self._spark.sql(f"SHOW TBLPROPERTIES {self._name(table)}").collect()
        return [dt.date.fromisoformat(row.key[len(_EMPTY) :]) for row in rows if row.key.startswith(_EMPTY)]

    def files(self, table: Table, date: dt.date, folder: Path) -> list[str]:
        path = folder / table.name / f"date={date}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(self.read(self._spark, table, [date]).drop("date").toArrow(), path)
        return [str(path)]

    def withdraw(self, table: Table, dates: Sequence[dt.date]) -> None:
        if not dates or not self._exists(self._spark, table):
            return
        name = self._name(table)
        wanted = ", ".join(f"DATE '{date}'" for date in dates)
        before = dt.datetime.now(dt.UTC) - dt.timedelta(days=_SNAPSHOT_DAYS)
        try:
            self._spark.sql(f"DELETE FROM {name} WHERE date IN ({wanted})")
            if gone := [date for date in self._empty(table) if date in dates]:
                keys = ", ".join(f"'{_EMPTY}{date}'" for date in gone)
                self._spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ({keys})")
            self._spark.sql(
                f"CALL {self._catalog.name}.system.expire_snapshots(table => '{name}', "
                f"older_than => TIMESTAMP '{before:%Y-%m-%d %H:%M:%S}')"
            ).collect()
        except PySparkException as error:
            raise StorageError(f"{name}: dates cannot be deleted: {reason(error)}") from error


def _column(table: Table, name: str) -> str:
    return f"`{name}` {table.columns[name]} COMMENT {_text(meaning(table, name))}"


def _text(text: str) -> str:
    """A literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
