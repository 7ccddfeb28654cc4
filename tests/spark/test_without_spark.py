"""The package is installed with the streamer, what the jobs need is not: whoever starts one is told what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("job", ["nightly", "report", "generate", "completeness"])
@pytest.mark.parametrize(("missing", "named"), [(["pyspark"], "pyspark"), (["jinja2", "pyarrow"], "pyarrow, jinja2")])
def test_what_is_missing_is_named_with_what_installs_it(job: str, missing: list[str], named: str) -> None:
    program = f"import runpy, sys; sys.modules |= dict.fromkeys({missing}); runpy.run_module('spark_jobs.{job}')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f"ImportError: the nightly jobs need {named}; install with: pip install 'uprotocol-ustreamer[spark]'"
