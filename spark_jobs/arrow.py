"""Arrow's types for those of Spark that trace records and tables have. All versions of Spark read and write them alike."""

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
