"""The audit log of the administration, and an action that it has."""

import pytest

from streamer.logs.audit import NAME
from tests.flow.harness import SPEED

PAUSE = {"topic": str(SPEED)}


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == NAME]
