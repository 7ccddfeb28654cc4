"""SQL that makes the published tables known to Spark, DuckDB or Trino.

``python -m spark_jobs.ddl --dialect duckdb --tables FOLDER`` prints it. It is safe to run again: after an upgrade that adds
a table or a column, and for Spark and Trino after each night, so that they know the new date.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

from spark_jobs.columns import meaning
from spark_jobs.tables import ROLLUP, TABLES, VIEWS, Table

_SCHEMA = "ustreamer"
_DUCKDB = {"INT": "INTEGER", "STRING": "VARCHAR", "BINARY": "BLOB", "TIMESTAMP": "TIMESTAMP WITH TIME ZONE"}
_TRINO = {"INT": "INTEGER", "STRING": "VARCHAR", "BINARY": "VARBINARY", "TIMESTAMP": "TIMESTAMP(6)"}
"""Where they have other names for Spark's types."""


def spark(table: Table, folder: str) -> Iterator[str]:
    """A table of Spark's own over the Parquet files."""
    if table.query:
        comments = ", ".join(f"{name} COMMENT {_escaped(meaning(table, name))}" for name in table.columns)
        head = f"CREATE OR REPLACE VIEW {table.name} ({comments}) COMMENT {_escaped(table.question)}"
        yield f"{head} AS\n{_selected(table, ROLLUP.name)}"
        return
    columns = ",\n".join(
        f"  `{name}` {kind} COMMENT {_escaped(meaning(table, name))}" for name, kind in table.columns.items()
    )
    yield (
        f"CREATE TABLE IF NOT EXISTS {table.name} (\n{columns}\n) USING parquet\nPARTITIONED BY (`date`)\n"
        f"COMMENT {_escaped(table.question)}\nLOCATION {_escaped(f'{folder}/{table.name}')}"
    )
    yield f"MSCK REPAIR TABLE {table.name}"


def duckdb(table: Table, folder: str) -> Iterator[str]:
    """A view over the Parquet files."""
    files = [f"{folder}/{table.name}/date=*/*.parquet"]
    yield f"CREATE OR REPLACE VIEW {table.name} AS\n" + (
        _selected(table, ROLLUP.name) if table.query else over_files(table, files)
    )
    yield f"COMMENT ON VIEW {table.name} IS {quoted(table.question)}"
    for name in table.columns:
        yield f'COMMENT ON COLUMN {table.name}."{name}" IS {quoted(meaning(table, name))}'


def over_files(table: Table, files: Sequence[str]) -> str:
    """DuckDB's query of Parquet files in folders ``date=D``. Columns that the files of older jobs lack are null."""
    columns = ", ".join(f'"{name}"' for name in table.columns)
    typed = ", ".join(f'CAST(NULL AS {_DUCKDB.get(kind, kind)}) AS "{name}"' for name, kind in table.columns.items())
    empty = f"SELECT {typed} WHERE false"
    if not files:
        return empty
    options = "hive_partitioning = true, hive_types = {'date': DATE}, union_by_name = true"
    read = f"read_parquet([{', '.join(map(quoted, files))}], {options})"
    return f"SELECT {columns}\nFROM (\n  {empty}\n  UNION ALL BY NAME\n  SELECT * FROM {read}\n)"


def trino(table: Table, folder: str) -> Iterator[str]:
    """An external table of Trino's Hive connector over the Parquet files. Its partition has to be the last column."""
    if table.query:
        yield _trino_view(table, "hive")
        return
    ordered = {name: kind for name, kind in table.columns.items() if name != "date"} | {"date": "DATE"}
    columns = ",\n".join(
        f'  "{name}" {_TRINO.get(kind, kind)} COMMENT {quoted(meaning(table, name))}' for name, kind in ordered.items()
    )
    yield (
        f"CREATE TABLE IF NOT EXISTS hive.{_SCHEMA}.{table.name} (\n{columns}\n)\nCOMMENT {quoted(table.question)}\n"
        f"WITH (format = 'PARQUET', partitioned_by = ARRAY['date'], external_location = {quoted(f'{folder}/{table.name}')})"
    )
    yield f"CALL hive.system.sync_partition_metadata('{_SCHEMA}', '{table.name}', 'FULL')"


def trino_iceberg(table: Table, folder: str) -> Iterator[str]:
    """Registers a table of Iceberg with a catalogue of Trino's that is not the one of the jobs: as it is now."""
    if table.query:
        yield _trino_view(table, "iceberg")
        return
    location = quoted(f"{folder}/{_SCHEMA}/{table.name}")
    yield f"CALL iceberg.system.register_table('{_SCHEMA}', '{table.name}', {location})"


def _trino_view(table: Table, catalog: str) -> str:
    rows = _selected(table, f"{catalog}.{_SCHEMA}.{ROLLUP.name}")
    return f"CREATE OR REPLACE VIEW {catalog}.{_SCHEMA}.{table.name} COMMENT {quoted(table.question)} AS\n{rows}"


def _selected(view: Table, rollup: str) -> str:
    return f"SELECT {', '.join(view.columns)}\nFROM (\n  {view.query.format(rollup=rollup)}\n) AS rows_of_view"


DIALECTS: dict[str, Callable[[Table, str], Iterator[str]]] = {
    "spark": spark,
    "duckdb": duckdb,
    "trino": trino,
    "trino-iceberg": trino_iceberg,
}


def statements(dialect: str, folder: str) -> Iterator[str]:
    """The statements for all tables, without their semicolons."""
    for table in (*TABLES.values(), *VIEWS.values()):
        yield from DIALECTS[dialect](table, folder.rstrip("/"))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escaped(text: str) -> str:
    """A literal of Spark's, which has escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m spark_jobs.ddl", description="Print SQL for the jobs' tables.")
    parser.add_argument("--dialect", required=True, choices=DIALECTS)
    parser.add_argument(
        "--tables", required=True, metavar="FOLDER", help="the --output of the jobs, as the reader reaches it"
    )
    given = parser.parse_args(argv)
    sys.stdout.writelines(f"{each};\n" for each in statements(given.dialect, given.tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
