"""Arrow's types for those of Spark that trace records and tables have. All versions of Spark read and write them alike."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""By Spark's names."""


def arrow_schema(columns: StructType | str) -> pa.Schema:
    """Arrow's schema of columns, or of a DDL string. PySpark's own function has other arguments in each version."""
    schema = StructType.fromDDL(columns) if isinstance(columns, str) else columns
    assert isinstance(schema, StructType)  # the stubs say DataType
    return pa.schema([pa.field(field.name, TYPES[field.dataType.simpleString()], field.nullable) for field in schema])


def tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, equal texts as one object. Few are made at a time: columns take a tenth of their memory."""
    texts: dict[str | None, str | None] = {}

    def values(column: pa.Array) -> list[Any]:
        found: list[Any] = column.to_pylist()
        return [texts.setdefault(each, each) for each in found] if column.type == pa.string() else found

    for batch in table.to_batches(1 << 14):
        yield from zip(*map(values, batch.columns), strict=True)
