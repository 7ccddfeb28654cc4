"""Generates traces as a chain of streamers would write them, with known faults that the jobs have to find."""

from spark_jobs.generate.fleet import Fleet, generate_fleet
from spark_jobs.generate.plan import Faults, Plan, Surge
from spark_jobs.generate.write import generate, release

__all__ = ["Faults", "Fleet", "Plan", "Surge", "generate", "generate_fleet", "release"]
