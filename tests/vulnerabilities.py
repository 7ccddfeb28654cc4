"""Asks for known vulnerabilities of what requirements/run.lock names (`python -m tests.vulnerabilities`, in `make lint`).

Without a network, or where the database does not know our packages, it says so and is content: nobody should need the
internet to work on this. It never takes longer than `LIMIT_S`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements/run.lock"
LIMIT_S = 5
_COMMAND = (sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "--progress-spinner", "off")
_OPTIONS = ("--timeout", "2", "--format", "json", "--requirement", str(LOCK))


def verdict(report: dict[str, Any]) -> tuple[int, str]:
    """The exit code and what to say about a report of pip-audit."""
    asked = report["dependencies"]
    found = [
        f"{each['name']} {each['version']}: {problem['id']}, mended in {', '.join(problem['fix_versions']) or 'none yet'}"
        for each in asked
        for problem in each.get("vulns", ())
    ]
    unknown = [each["name"] for each in asked if "skip_reason" in each]
    if found:
        return 1, "\n".join(found)
    if len(unknown) == len(asked):
        return 0, "vulnerabilities: skipped, the database is not reachable"
    note = f", not known there: {', '.join(unknown)}" if unknown else ""
    return 0, f"vulnerabilities: none known in {len(asked) - len(unknown)} packages{note}"


def main() -> int:
    """Ask, print what was found, and return the exit code."""
    try:
        done = subprocess.run([*_COMMAND, *_OPTIONS], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        status, text = verdict(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        status, text = 0, f"vulnerabilities: skipped, the database does not answer within {LIMIT_S} s"
    except ValueError:  # no report: it could not ask
        status, text = 0, "vulnerabilities: skipped, the database is not reachable"
    sys.stdout.write(f"{text}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
