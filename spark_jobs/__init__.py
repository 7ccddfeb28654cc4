"""The nightly jobs: from routing traces to tables, an audit of at-least-once delivery, and a report."""
