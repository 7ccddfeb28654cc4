"""The summary of `make interop`."""

import pytest

from tests.interop.build import PROGRAMS
from tests.interop.programs import reason_file


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which programs were tried, and why the others were not."""
    terminalreporter.section("programs of others")
    for program in PROGRAMS:
        file = reason_file(program.name)
        outcome = f"left out: {file.read_text().strip()}" if file.exists() else "tried"
        terminalreporter.write_line(f"{program.name}: {program.what}: {outcome}")
