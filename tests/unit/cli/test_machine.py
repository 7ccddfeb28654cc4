"""What the probes of the machine say of single files and sizes."""

from pathlib import Path

import pytest

from streamer.cli.machine import _readable, _shown
from streamer.transports.probe import Verdict


@pytest.mark.parametrize(
    ("content", "verdict"), [("", Verdict.PROBLEM), ("\n", Verdict.PROBLEM), ("\r\n", Verdict.PROBLEM), ("x\n", Verdict.OK)]
)
def test_a_secret_that_is_a_line_end_is_none(tmp_path: Path, content: str, verdict: Verdict) -> None:
    path = tmp_path / "password"
    path.write_text(content)
    path.chmod(0o600)
    assert _readable(path, is_secret=True).verdict is verdict


def test_sizes_are_told_in_three_digits() -> None:
    assert [_shown(size) for size in (999, 1000, 1023 << 20, 72 << 30)] == ["999 bytes", "0.977 KiB", "0.999 GiB", "72 GiB"]
