"""The ways to a broker: who uses plain MQTT pays nothing for the others. That they work is tested in tests/e2e."""

import subprocess
import sys


def test_the_library_for_websocket_is_loaded_only_by_a_broker_that_needs_it() -> None:
    program = "import sys, streamer.transports.mqtt5.transport; sys.exit('websockets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
