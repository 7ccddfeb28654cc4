"""The programs of other languages that `tests.interop.build` has built, or why there are none."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "interop"


def reason_file(name: str) -> Path:
    """Says in one line why the program could not be built."""
    return BUILD / f"{name}.skipped"


def need(name: str, built: Path) -> Path:
    """What was built. Without it the test is skipped, with the reason."""
    if reason_file(name).exists():
        pytest.skip(f"{name}: {reason_file(name).read_text().strip()}")
    if not built.exists():
        pytest.skip(f"{name}: not built (make interop does it)")
    return built
