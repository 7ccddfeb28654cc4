"""mosquitto as a bridge between two brokers, in the streamer's place: a third one that fetches here and brings there."""

import time
from pathlib import Path

from tests.bench.forms import Child
from tests.ports import free_port
from tests.programs import require

_CONFIG = """
listener {own} 127.0.0.1
allow_anonymous true
user root
max_inflight_messages 1000
max_queued_messages 0
log_dest none

connection source
address 127.0.0.1:{source}
topic +/veh1 in 1
bridge_protocol_version mqttv50
try_private false
notifications false

connection target
address 127.0.0.1:{target}
topic +/veh1 out 1
bridge_protocol_version mqttv50
try_private false
notifications false
"""
_CONNECTS_S = 2.0


def start(directory: str, source: int, target: int) -> Child:
    """A bridge between the brokers on these ports."""
    path = Path(directory) / "bridge.conf"
    path.write_text(_CONFIG.format(own=free_port(), source=source, target=target))
    child = Child("-c", str(path), program=require("mosquitto"))
    time.sleep(_CONNECTS_S)
    return child
