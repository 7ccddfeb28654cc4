"""Programs that pip does not bring. Tests that need one are marked with its name, and skipped where it is missing.

With ``USTREAMER_NO_SKIPS=1`` they fail instead: for machines that have to have all of them, but for what is optional.
"""

import os
import shutil

import pytest

OPTIONAL = ("helm", "mosquitto_pub", "amtool", "prometheus-alertmanager")
"""What no package of Debian brings, or few tests need: its tests are skipped where it is missing, in CI as well."""

PROGRAMS = ("helm", "mosquitto", "mosquitto_pub", "chromium", "promtool")
"""Each is a marker too."""


def require(name: str) -> str:
    """The path of a program. Without it the test is skipped, or fails."""
    if (found := shutil.which(name)) is not None:
        return found
    reason = f"{name} is not on PATH"
    if name not in OPTIONAL and os.environ.get("USTREAMER_NO_SKIPS") == "1":
        pytest.fail(f"{reason}, and USTREAMER_NO_SKIPS=1 says that nothing may be skipped for that")
    pytest.skip(reason)
