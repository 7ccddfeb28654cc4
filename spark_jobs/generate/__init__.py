"""Generates traces as a chain of streamers would write them, with known faults that the jobs have to find."""

from spark_jobs.generate.plan import Faults, Plan, Surge
from spark_jobs.generate.write import generate, release

__all__ = ["Faults", "Plan", "Surge", "generate", "release"]
