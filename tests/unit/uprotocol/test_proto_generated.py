"""The committed protobuf modules match the .proto files, and those match the contract, which is written out here."""

import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from streamer.uprotocol.message import UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from streamer.uprotocol.proto import usubscription_v3_pb2, usubscription_v4_pb2
from streamer.uprotocol.proto import utwin_v2_pb2 as utwin
from streamer.uprotocol.status import UCode

ROOT = Path(__file__).parents[3]
PROTO = Path("streamer/uprotocol/proto")

STRING, UINT32, FIXED64, BYTES = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_UINT32,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_BYTES,
)

# number: (type or the full name of a message or enum, name, has presence)
TABLES = {
    "UUri": {
        1: (STRING, "authority_name", False),
        2: (UINT32, "ue_id", False),
        3: (UINT32, "ue_version_major", False),
        4: (UINT32, "resource_id", False),
    },
    "UUID": {1: (FIXED64, "msb", False), 2: (FIXED64, "lsb", False)},
    "UStatus": {
        1: ("uprotocol.v1.UCode", "code", False),
        2: (STRING, "message", True),
        3: ("google.protobuf.Any", "details", False),
    },
    "UMessage": {1: ("uprotocol.v1.UAttributes", "attributes", True), 2: (BYTES, "payload", True)},
    "UAttributes": {
        1: ("uprotocol.v1.UUID", "id", True),
        2: ("uprotocol.v1.UMessageType", "type", False),
        3: ("uprotocol.v1.UUri", "source", True),
        4: ("uprotocol.v1.UUri", "sink", True),
        5: ("uprotocol.v1.UPriority", "priority", False),
        6: (UINT32, "ttl", True),
        7: (UINT32, "permission_level", True),
        8: ("uprotocol.v1.UCode", "commstatus", True),
        9: ("uprotocol.v1.UUID", "reqid", True),
        10: (STRING, "token", True),
        11: (STRING, "traceparent", True),
        12: ("uprotocol.v1.UPayloadFormat", "payload_format", False),
    },
}

ENUMS = {
    "UMessageType": (
        "UMESSAGE_TYPE_UNSPECIFIED UMESSAGE_TYPE_PUBLISH UMESSAGE_TYPE_REQUEST UMESSAGE_TYPE_RESPONSE "
        "UMESSAGE_TYPE_NOTIFICATION"
    ),
    "UPriority": (
        "UPRIORITY_UNSPECIFIED UPRIORITY_CS0 UPRIORITY_CS1 UPRIORITY_CS2 UPRIORITY_CS3 UPRIORITY_CS4 UPRIORITY_CS5 "
        "UPRIORITY_CS6"
    ),
    "UPayloadFormat": (
        "UPAYLOAD_FORMAT_UNSPECIFIED UPAYLOAD_FORMAT_PROTOBUF_WRAPPED_IN_ANY UPAYLOAD_FORMAT_PROTOBUF "
        "UPAYLOAD_FORMAT_JSON UPAYLOAD_FORMAT_SOMEIP UPAYLOAD_FORMAT_SOMEIP_TLV UPAYLOAD_FORMAT_RAW "
        "UPAYLOAD_FORMAT_TEXT UPAYLOAD_FORMAT_SHM"
    ),
    "UCode": (
        "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
        "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
        "UNAUTHENTICATED"
    ),
}


def described(descriptor: Any) -> dict[int, tuple[object, str, bool]]:
    found: dict[int, tuple[object, str, bool]] = {}
    for field in descriptor.fields:
        target = field.message_type or field.enum_type
        found[field.number] = (target.full_name if target else field.type, field.name, field.has_presence)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_field_numbers_types_and_presence_are_the_contract(name: str) -> None:
    assert described(pb.DESCRIPTOR.message_types_by_name[name]) == TABLES[name]


def test_only_status_details_and_batches_are_repeated() -> None:
    repeated = {
        field.full_name
        for message in pb.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if field.is_repeated
    }
    assert repeated == {"uprotocol.v1.UStatus.details", "uprotocol.v1.UUriBatch.uris"}


@pytest.mark.parametrize("name", ENUMS)
def test_enum_numbers_are_the_contract(name: str) -> None:
    values = pb.DESCRIPTOR.enum_types_by_name[name].values
    assert {value.name: value.number for value in values} == {
        text: number for number, text in enumerate(ENUMS[name].split())
    }


@pytest.mark.parametrize(
    ("ours", "prefix"),
    [(UMessageType, "UMESSAGE_TYPE_"), (UPriority, "UPRIORITY_"), (UPayloadFormat, "UPAYLOAD_FORMAT_"), (UCode, "")],
)
def test_our_enums_have_the_same_names_and_numbers(ours: type[Enum], prefix: str) -> None:
    assert [prefix + value.name for value in ours] == ENUMS[ours.__name__].split()
    assert [value.value for value in ours] == list(range(len(ours)))


def test_packages_are_the_contract() -> None:
    assert pb.DESCRIPTOR.package == "uprotocol.v1"
    assert ustreamer.DESCRIPTOR.package == "uprotocol.core.ustreamer.v1"


def test_fields_of_utwin_are_the_contract() -> None:
    assert utwin.DESCRIPTOR.package == "uprotocol.core.utwin.v2"
    assert {name: described(message) for name, message in utwin.DESCRIPTOR.message_types_by_name.items()} == {
        "GetLastMessagesRequest": {1: ("uprotocol.v1.UUriBatch", "topics", True)},
        "MessageResponse": {
            1: ("uprotocol.v1.UUri", "topic", True),
            2: ("uprotocol.v1.UStatus", "status", True),
            3: ("uprotocol.v1.UMessage", "message", True),
        },
        "GetLastMessagesResponse": {2: ("uprotocol.core.utwin.v2.MessageResponse", "responses", False)},
    }


SERVICES = [ustreamer, utwin, usubscription_v3_pb2, usubscription_v4_pb2]


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.DESCRIPTOR.package)
def test_every_request_of_our_services_has_a_response_of_its_own(service: Any) -> None:
    messages = service.DESCRIPTOR.message_types_by_name
    called = [name.removesuffix("Request") for name in messages if name.endswith("Request")]
    assert called
    assert [name for name in called if f"{name}Response" not in messages] == []


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.DESCRIPTOR.package)
def test_responses_of_our_services_say_nothing_of_failures(service: Any) -> None:
    """The status of one topic among many is no failure of the Request."""
    messages = service.DESCRIPTOR.message_types_by_name
    fields = [field for name in messages if name.endswith("Response") for field in messages[name].fields]
    kinds = {field.full_name: (field.message_type or field.enum_type) for field in fields}
    statuses = [
        name for name, kind in kinds.items() if kind and kind.full_name in ("uprotocol.v1.UStatus", "uprotocol.v1.UCode")
    ]
    assert statuses == (["uprotocol.core.utwin.v2.MessageResponse.status"] if service is utwin else [])


def test_dead_letter_fields_are_what_readers_rely_on() -> None:
    assert {number: name for number, (_, name, _) in described(ustreamer.DeadLetter.DESCRIPTOR).items()} == dict(
        enumerate(
            ["message", "status", "route", "endpoint", "attempts", "first_time", "last_time", "streamer", "payload_bytes"],
            start=1,
        )
    )


def test_committed_modules_are_what_make_proto_would_write(tmp_path: Path) -> None:
    protos = sorted(path.relative_to(ROOT) for path in (ROOT / PROTO).glob("*.proto"))
    assert protos
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*command, *map(str, protos)], cwd=ROOT, check=True, timeout=60)
    made = {path.name: path.read_text() for path in (tmp_path / PROTO).iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / PROTO).glob("*_pb2.py*")}
    assert made == committed
