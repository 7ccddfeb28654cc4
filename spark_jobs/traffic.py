"""How much went from whom to whom in each hour, over which route, and what became of it? Most questions are views of it."""

from spark_jobs import job, rollup
from spark_jobs.tables import ROLLUP

JOB = job.Job("rollup", (ROLLUP,), lambda batch: (rollup.published(batch.rollup),))
