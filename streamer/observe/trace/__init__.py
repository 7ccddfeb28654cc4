"""Routing traces: one record per delivery outcome, on its way from the router to Parquet files.

settle → recorder (packs) → spool (a thread; Arrow IPC streams) → sealing (a process of low priority) → Parquet
"""
