"""The program with a live audit that waits for seconds where it else waits for minutes: ``python -m`` this, no tests.

Every class is sure from its first message on (`SETTLE_S`): a test waits for verdicts, and not for a time.
"""

from streamer.__main__ import program
from streamer.features.live_audit import comparison, service

service._TICK_S = 0.5
service.QUIET_S = 2.0  # type: ignore[attr-defined]  # final in all other programs
comparison.WAIT_S = 8.0  # type: ignore[misc]
comparison.SETTLE_S = -3600.0  # type: ignore[misc]

program()
