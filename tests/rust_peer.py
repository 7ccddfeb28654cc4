"""The uProtocol SDK in Rust (`up-py-rs`) as the other side: a process of its own that knows nothing of this project.

The SDK takes no Zenoh configuration and is found through multicast scouting only, so every other Zenoh process on the
machine may be found as well: authorities are unique per run. Its Python binding can send a Publish but no Notification
over Zenoh (`SimpleNotifier` takes its local transport only).
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import zenoh
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import StringValue

_PEER = """
import json, sys
from up_py_rs import StaticUriProvider
from up_py_rs.communication import SimplePublisher, UPayload
from up_py_rs.zenoh_transport import UPTransportZenoh

own, other = sys.argv[1:]
transport = UPTransportZenoh.builder(own).build()
publisher = SimplePublisher(transport, StaticUriProvider(own, 0x1A34B, 2))
heard = StaticUriProvider(other, 0xA8000, 2).get_resource_uri(0x8A50)
transport.register_listener(heard, lambda message: print(json.dumps(message.extract_string()), flush=True))
print("ready", flush=True)
for line in sys.stdin:
    publisher.publish(0xB4C1, UPayload.from_string(line.strip()))
"""


def scouting_session() -> zenoh.Session:
    config = zenoh.Config()
    config.insert_json5("scouting/multicast/enabled", "true")
    config.insert_json5("listen/endpoints", json.dumps(["tcp/127.0.0.1:0"]))
    return zenoh.open(config)


@pytest.fixture(scope="module")
def multicast() -> None:
    """Skip where two sessions do not find each other."""
    with scouting_session() as one, scouting_session() as two:
        wanted = str(two.zid())
        deadline = time.monotonic() + 5
        while wanted not in map(str, one.info.peers_zid()):
            if time.monotonic() > deadline:
                pytest.skip("multicast scouting does not work on this machine")
            time.sleep(0.05)


@asynccontextmanager
async def rust_peer(own: str, other: str) -> AsyncIterator["subprocess.Popen[str]"]:
    """The SDK in a process of its own; ``own`` publishes on B4C1 what it reads, and prints what ``other`` publishes."""
    with subprocess.Popen(
        [sys.executable, "-c", _PEER, own, other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
            yield process
        finally:
            process.kill()


def as_any(text: str) -> bytes:
    wrapped = AnyMessage()
    wrapped.Pack(StringValue(value=text))
    return wrapped.SerializeToString()
