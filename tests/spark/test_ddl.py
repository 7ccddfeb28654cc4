"""The SQL for the tables: run by DuckDB and Spark; for Trino, which is not here, its form."""

import datetime as dt
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs import columns, ddl
from spark_jobs.arrow import TYPES
from spark_jobs.tables import TABLES, VIEWS, Table
from tests.pages import DOCS
from tests.spark.traces import DATE, record, write

pytestmark = pytest.mark.long

EVERY = TABLES | VIEWS
ODD = "vehicle's tables"
VALUES = {
    "BIGINT": 2**40,
    "INT": 7,
    "DOUBLE": 0.5,
    "BOOLEAN": True,
    "STRING": "a",
    "BINARY": b"\x00\xff",
    "TIMESTAMP": dt.datetime(2026, 11, 20, 1, 2, 3, 4, dt.UTC),
}


def value(name: str, kind: str) -> Any:
    return {"outcome": "expired", "status": "unknown"}.get(name, VALUES[kind])


def written(folder: Path, table: Table, date: dt.date, rows: int, without: tuple[str, ...] = ()) -> None:
    """A file as the jobs write it."""
    names = [name for name in table.columns if name not in ("date", *without)]
    kinds = [table.columns[name] for name in names]
    arrays = [pa.array([value(*each)] * rows, TYPES[each[1].lower()]) for each in zip(names, kinds, strict=True)]
    (folder / table.name / f"date={date}").mkdir(parents=True)
    pq.write_table(pa.table(arrays, names), folder / table.name / f"date={date}" / "part-0.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Every table: one date without rows, one with rows of an older version, which had a column less, one with all."""
    for table in TABLES.values():
        written(tmp_path / ODD, table, DATE, 0)
        written(tmp_path / ODD, table, DATE + dt.timedelta(days=1), 2, without=([*table.columns][-1],))
        written(tmp_path / ODD, table, DATE + dt.timedelta(days=2), 1)
    return tmp_path / ODD


def test_duckdb_sees_every_table_with_its_types_and_comments(folder: Path) -> None:
    with duckdb.connect() as database:
        for _ in range(2):  # it is safe to run again
            for statement in ddl.statements("duckdb", f"{folder}/"):
                database.execute(statement)
        database.execute("SET TimeZone = 'UTC'")
        for table in EVERY.values():
            found = {name: kind for name, kind, *_ in database.execute(f"DESCRIBE {table.name}").fetchall()}
            assert found == {name: ddl._DUCKDB.get(kind, kind) for name, kind in table.columns.items()}
            rows = database.execute(f"SELECT * FROM {table.name} ORDER BY date").fetchall()
            if table.query:
                continue
            last = (DATE + dt.timedelta(days=2), *(value(*each) for each in [*table.columns.items()][1:]))
            older = (DATE + dt.timedelta(days=1), *last[1:-1], None)
            assert rows == [older, older, last]
        query = "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
        told = {(table, column): comment for table, column, comment in database.execute(query).fetchall()}
        assert told == {
            (table.name, each): columns.meaning(table, each) for table in EVERY.values() for each in table.columns
        }


def test_the_queries_of_the_documents_run(folder: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "features" / "nightly.md").read_text()
    text = text.partition("\n### SQL\n")[2].partition("\n## ")[0]
    queries = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert len(queries) == 3
    well = {"streamer": "well", "records": 9, "records_missing": 0, "records_impossible": 0, "files_left_out": 0}
    (newest,) = (folder / "streamer_health" / f"date={DATE + dt.timedelta(days=2)}").iterdir()
    pq.write_table(
        pa.Table.from_pylist([well | {"clock_skew_ms": skew} for skew in (999.0, None)]), newest.with_name("more.parquet")
    )
    with duckdb.connect() as database:
        for statement in ddl.statements("duckdb", str(folder)):
            database.execute(statement)
        for query in queries:
            assert database.execute(query).fetchall() != []
        assert [row[0] for row in database.execute(queries[2]).fetchall()] == ["a"], "and not everybody"


def test_the_view_of_raw_traces_shows_every_record(tmp_path: Path) -> None:
    write(tmp_path, [record(), record("09:00", outcome="expired")])
    (queries,) = re.findall(r"```sql\n(.*?)```", (DOCS / "features/traces.md").read_text(), re.DOTALL)
    with duckdb.connect() as database:
        for query in queries.replace("/var/lib/streamer/traces", str(tmp_path)).split(";")[:-1]:
            rows = database.execute(query).fetchall()
    assert {(outcome, messages) for _, outcome, _, messages in rows} == {("delivered", 1), ("expired", 1)}


def test_spark_sees_every_table(spark: SparkSession, folder: Path) -> None:
    try:
        for statement in ddl.statements("spark", str(folder)):
            spark.sql(statement)
        for table in EVERY.values():
            rows = spark.table(table.name)
            kinds = {field.name: field.dataType.simpleString().upper() for field in rows.schema}
            assert kinds == table.columns
            assert table.query or rows.count() == 3
            comments = {each.name: each.description for each in spark.catalog.listColumns(table.name)}
            assert comments == {name: columns.meaning(table, name) for name in table.columns}
    finally:
        for name, table in EVERY.items():
            spark.sql(f"DROP {'VIEW' if table.query else 'TABLE'} IF EXISTS {name}")
    assert len([*folder.rglob("*.parquet")]) == 3 * len(TABLES)  # which are not Spark's own


def test_trino_gets_every_column_with_the_partition_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert ddl.main(["--dialect", "trino", "--tables", "s3://fleet/tables"]) == 0
    text = capsys.readouterr().out
    for table in TABLES.values():
        _, _, made = text.partition(f"hive.ustreamer.{table.name} (\n")
        made = made.partition("\n)\n")[0]
        named = [line.split('"')[1] for line in made.splitlines()]
        assert named == [*[name for name in table.columns if name != "date"], "date"]
        assert f"external_location = 's3://fleet/tables/{table.name}'" in text
    assert all(f"VIEW hive.ustreamer.{name} COMMENT" in text for name in VIEWS)
    registered = [*ddl.statements("trino-iceberg", "s3://fleet/tables")]
    assert registered[0] == "CALL iceberg.system.register_table('ustreamer', 'rollup', 's3://fleet/tables/ustreamer/rollup')"
    assert "FROM iceberg.ustreamer.rollup" in registered[-1]


def test_every_column_has_a_meaning() -> None:
    used = {name for table in EVERY.values() for name in table.columns}
    assert used <= {each.partition("@")[0] for each in columns._MEANINGS}
    for each in columns._MEANINGS:
        column, _, table = each.partition("@")
        assert table not in EVERY or column in EVERY[table].columns
