"""The nightly jobs: from routing traces to tables, an audit of at-least-once delivery, and a report."""

from importlib.util import find_spec

_NEEDED = ("pyspark", "pyarrow", "jinja2", "yaml", "duckdb")

if _missing := [name for name in _NEEDED if find_spec(name) is None]:
    raise ImportError(f"the nightly jobs need {', '.join(_missing)}; install with: pip install 'uprotocol-ustreamer[spark]'")
