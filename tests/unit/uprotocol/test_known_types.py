"""The payloads that are shown as what they are: which type each has, and how it reads."""

import json

import pytest
import yaml
from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.message import Message

from streamer.config.models import Config
from streamer.daemon import Daemon
from streamer.features.usubscription.versions import VERSIONS
from streamer.uprotocol import known_types
from streamer.uprotocol.known_types import decoded, readable, type_of
from streamer.uprotocol.message import Attributes, UMessageType, UPayloadFormat
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import ustreamer_v1_pb2 as us
from streamer.uprotocol.proto import usubscription_v3_pb2 as v3
from streamer.uprotocol.proto import usubscription_v4_pb2 as v4
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USTREAMER, USUBSCRIPTION, USUBSCRIPTION_4, EntityId
from tests.pages import ROOT

APP = UUri("veh1", 0xA8000, 2, 0)
PROTOBUF = UPayloadFormat.PROTOBUF


def asked(method: int, entity: EntityId = USTREAMER) -> Attributes:
    return Attributes(UMessageType.REQUEST, APP, entity.at("gw", method), payload_format=PROTOBUF)


def answered(method: int, entity: EntityId = USTREAMER, code: UCode | None = None) -> Attributes:
    kind = UMessageType.RESPONSE
    return Attributes(kind, entity.at("gw", method), APP, commstatus=code, payload_format=PROTOBUF)


def told(topic: int, entity: EntityId = USTREAMER, sink: UUri | None = None) -> Attributes:
    kind = UMessageType.PUBLISH if sink is None else UMessageType.NOTIFICATION
    return Attributes(kind, entity.at("gw", topic), sink, payload_format=PROTOBUF)


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        (told(0x8002), us.Status),
        (told(0x8001), us.DeadLetter),
        (asked(1), us.StopDispatchRequest),
        (answered(1), us.StopDispatchResponse),
        (answered(1, code=UCode.OK), us.StopDispatchResponse),
        (answered(1, code=UCode.NOT_FOUND), v1.UStatus),
        (Attributes(UMessageType.RESPONSE, UUri("cloud", 0xC0, 1, 7), APP, commstatus=UCode.NOT_FOUND), v1.UStatus),
        (asked(0x12), us.ResolveMulticastRequest),
        (asked(1, USUBSCRIPTION), v3.SubscriptionRequest),
        (answered(8, USUBSCRIPTION), v3.FetchSubscribersResponse),
        (told(0x8000, USUBSCRIPTION, APP), v3.Update),
        (asked(4, USUBSCRIPTION_4), v4.NotificationsRequest),
        (told(0x8000, USUBSCRIPTION_4, APP), v4.Subscription),
        (asked(0x77), None),
        (told(0x8003), None),
        (asked(1, EntityId(4, 2)), None),
        (Attributes(UMessageType.RESPONSE, UUri("cloud", 0xC0, 1, 7), APP), None),
    ],
)
def test_the_type_is_that_of_the_method_or_topic(attributes: Attributes, kind: type[Message] | None) -> None:
    assert type_of(attributes) is kind


async def test_every_method_of_ours_is_known_and_no_other() -> None:
    raw = yaml.safe_load((ROOT / "config/minimal.yaml").read_text())
    served = Daemon(Config.model_validate(raw)).service_host._rpc._methods
    methods = {entity: methods for entity, (_, methods, _) in known_types._SERVICES.items()}
    assert methods[USTREAMER].keys() == served.keys()
    for number, method in served.items():
        assert type_of(asked(number)) is method.request
    for entity in (USUBSCRIPTION, USUBSCRIPTION_4):
        assert methods[entity].keys() == VERSIONS[entity.version].METHODS.keys()
        assert all(type_of(each(number, entity)) for number in methods[entity] for each in (asked, answered))


def test_what_is_in_an_any_says_its_own_type() -> None:
    wrapped = AnyProto()
    wrapped.Pack(us.PingResponse())
    form = UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY
    stranger = Attributes(UMessageType.PUBLISH, UUri("cloud", 0xC0, 1, 0x8001), payload_format=form)
    assert decoded(stranger, wrapped.SerializeToString()) == us.PingResponse()
    wrapped.type_url = "type.googleapis.com/somebody.Else"
    assert decoded(stranger, wrapped.SerializeToString()) is None
    wrapped.type_url = "type.googleapis.com/uprotocol.v1.Nothing"
    assert decoded(stranger, wrapped.SerializeToString()) is None


@pytest.mark.parametrize("form", [UPayloadFormat.JSON, UPayloadFormat.RAW, UPayloadFormat.TEXT, UPayloadFormat.SOMEIP])
def test_another_format_is_not_taken_for_protobuf(form: UPayloadFormat) -> None:
    attributes = Attributes(UMessageType.PUBLISH, USTREAMER.at("gw", 0x8002), payload_format=form)
    assert decoded(attributes, us.Status(ready=True).SerializeToString()) is None


@pytest.mark.parametrize("form", [PROTOBUF, UPayloadFormat.UNSPECIFIED, UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY])
def test_what_is_not_of_its_type_is_none_of_ours(form: UPayloadFormat) -> None:
    attributes = Attributes(UMessageType.PUBLISH, USTREAMER.at("gw", 0x8002), payload_format=form)
    assert decoded(attributes, b"\xff") is None


def test_addresses_ids_times_and_numbers_are_readable() -> None:
    uri = v1.UUri(authority_name="veh1", ue_id=0xA8000, ue_version_major=2, resource_id=0x8A50)
    attributes = v1.UAttributes(id=v1.UUID(msb=0x0190000000007000, lsb=1 << 63), source=uri, priority=v1.UPRIORITY_CS2)
    letter = us.DeadLetter(
        message=v1.UMessage(attributes=attributes, payload=b"\xff"),
        status=v1.UStatus(code="NOT_FOUND", message="no"),
        attempts=2,
    )
    letter.first_time.FromJsonString("2026-11-27T10:00:00Z")
    shown = readable(letter)
    assert json.loads(json.dumps(shown)) == {
        "message": {
            "attributes": {
                "id": "01900000-0000-7000-8000-000000000000",
                "source": "//veh1/A8000/2/8A50",
                "priority": "UPRIORITY_CS2",
            },
            "payload": {"hex": "ff"},
        },
        "status": {"code": "NOT_FOUND", "message": "no"},
        "attempts": 2,
        "first_time": "2026-11-27T10:00:00Z",
    }


def test_lists_and_numbers_without_a_name_are_readable() -> None:
    status = us.Status(reasons=["a", "b"], endpoints=[us.EndpointStatus(name="cloud", state="down")], uptime_s=1 << 40)
    status.link = 77  # type: ignore[assignment]  # of a later version
    assert readable(status) == {
        "reasons": ["a", "b"],
        "uptime_s": 1 << 40,
        "endpoints": [{"name": "cloud", "state": "down"}],
        "link": 77,
    }
