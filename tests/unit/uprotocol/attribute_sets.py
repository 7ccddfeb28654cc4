"""Attributes of each type of message."""

from streamer.uprotocol.message import Attributes, UMessageType, UPriority
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.unit.uprotocol.strategies import START_MS

TOPIC = UUri("veh1", 0xA8000, 2, 0x8A50)


APP = UUri("cloud", 0xC0, 1, 0)


METHOD = UUri("veh1", 0xB, 1, 7)


REQID = new_id(START_MS)


PUBLISH = Attributes(UMessageType.PUBLISH, TOPIC)


REQUEST = Attributes(UMessageType.REQUEST, APP, METHOD, priority=UPriority.CS4, ttl=1000)


RESPONSE = Attributes(UMessageType.RESPONSE, METHOD, APP, priority=UPriority.CS4, ttl=1000, reqid=REQID)
