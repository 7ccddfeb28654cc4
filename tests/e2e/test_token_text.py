"""A token that MQTT cannot carry: its message fails, and the connection that it would have ended stays."""

import pytest

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.waiting import until

APP, METHOD = ("beta", 0x10, 1, 0), ("alpha", 0x20, 1, 5)
INVALID_ARGUMENT = 3

pytestmark = pytest.mark.mosquitto


@pytest.mark.parametrize(
    ("source", "token"),
    [
        ("zenoh", "read from a file\n"),
        ("zenoh", "end of text\0"),
        ("rumqttd/off-vehicle", "no character \uffff"),  # it takes what mosquitto does not
    ],
    ids=["line feed", "nul", "noncharacter"],
)
async def test_its_request_is_answered_and_the_next_one_arrives(source: str, token: str) -> None:
    async with Topology("mosquitto/in-vehicle", source) as topology:
        far, near = topology.networks
        bad = Plain(2, APP, METHOD, b"bad", 5, 60_000, token=token)
        good = Plain(2, APP, METHOD, b"good", 5, 60_000, token="text")
        await near.side.send([bad, good])
        await until(lambda: far.side.arrived, what="the good Request")
        assert far.side.arrived == [good]
        await until(lambda: any(each.type == 3 for each in near.side.arrived), what="the Response")
        (answer,) = (each for each in near.side.arrived if each.type == 3)
        assert (answer.reqid, answer.commstatus) == (bad.id, INVALID_ARGUMENT)
        status = pb.UStatus.FromString(answer.payload)
        assert "token" in status.message
        assert token not in status.message
        assert "link_down" not in topology.daemon.log
        topology.daemon.check_books()
