"""Where the tests of this folder write the file that they load."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "streamer.yaml"
