"""Stands in the way of pandas, which pyarrow loads where it finds it (40 MB). The jobs need it; no gateway has it."""

raise ImportError("not installed on a gateway")
