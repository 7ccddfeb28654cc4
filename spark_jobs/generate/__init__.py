"""Traces as the daemons of a chain of streamers would write them, with faults that are known: the jobs must find them."""

from spark_jobs.generate.plan import Faults, Plan, Surge
from spark_jobs.generate.write import generate, release

__all__ = ["Faults", "Plan", "Surge", "generate", "release"]
