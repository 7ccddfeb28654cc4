"""usubscription_v4.proto and its description match the tables of uSubscription version 4: names, numbers, types, methods."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor import FieldDescriptor

from streamer.features.usubscription import v4
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION_4

PACKAGE = "uprotocol.core.usubscription.v4"
URI = "uprotocol.v1.UUri"
TIME = "google.protobuf.Timestamp"
STATUS = f"{PACKAGE}.SubscriptionStatus"
UINT32 = FieldDescriptor.TYPE_UINT32
DESCRIPTION = Path(__file__).parents[3] / "docs" / "usubscription-v4.yaml"

# number: (name, type or the full name of a message or enum, has presence)
TABLES: dict[str, dict[int, tuple[str, Any, bool]]] = {
    "Subscription": {
        1: ("topic", URI, True),
        2: ("subscriber", URI, True),
        3: ("status", STATUS, False),
        4: ("expiration", TIME, True),
        5: ("sample_period", UINT32, True),
    },
    "SubscribeRequest": {1: ("topic", URI, True), 2: ("expiration", TIME, True), 3: ("sample_period", UINT32, True)},
    "SubscribeResponse": {1: ("topic", URI, True), 2: ("status", STATUS, False)},
    "UnsubscribeRequest": {1: ("topic", URI, True)},
    "UnsubscribeResponse": {},
    "FetchSubscriptionsRequest": {1: ("topic_filter", URI, True), 2: ("subscriber_filter", URI, True)},
    "FetchSubscriptionsResponse": {1: ("subscriptions", f"{PACKAGE}.Subscription", False)},
    "NotificationsRequest": {},
    "NotificationsResponse": {},
    "ResetRequest": {},
    "ResetResponse": {},
}

METHODS = {
    "Subscribe": 1,
    "Unsubscribe": 2,
    "FetchSubscriptions": 3,
    "RegisterForNotifications": 4,
    "UnregisterForNotifications": 5,
    "Reset": 6,
}


def _type(field: FieldDescriptor) -> object:
    named = field.message_type or field.enum_type
    return field.type if named is None else named.full_name


def test_there_are_no_other_messages() -> None:
    assert pb.DESCRIPTOR.package == PACKAGE
    assert set(pb.DESCRIPTOR.message_types_by_name) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_fields_are_the_contract(name: str) -> None:
    fields = pb.DESCRIPTOR.message_types_by_name[name].fields
    assert {field.number: (field.name, _type(field), field.has_presence) for field in fields} == TABLES[name]
    assert [field.name for field in fields if field.is_repeated] == [
        "subscriptions" for _ in range(name == "FetchSubscriptionsResponse")
    ]


def test_states_are_numbered_by_the_contract() -> None:
    assert [(value.number, value.name) for value in pb.DESCRIPTOR.enum_types_by_name["SubscriptionStatus"].values] == [
        (0, "STATUS_UNSPECIFIED"),
        (1, "STATUS_UNSUBSCRIBED"),
        (2, "STATUS_SUBSCRIBE_PENDING"),
        (3, "STATUS_SUBSCRIBED"),
        (4, "STATUS_UNSUBSCRIBE_PENDING"),
    ]


def test_methods_and_topic_have_the_numbers_of_the_contract() -> None:
    assert (*USUBSCRIPTION_4, CHANGES) == (0, 4, 0x8000)
    ours = (v4.SUBSCRIBE, v4.UNSUBSCRIBE, v4.FETCH_SUBSCRIPTIONS, v4.REGISTER, v4.UNREGISTER, v4.RESET)
    assert ours == tuple(METHODS.values())
    assert set(v4.METHODS) == set(ours)


def test_the_description_says_the_same() -> None:
    described = yaml.safe_load(DESCRIPTION.read_text())
    service = described["info"]["x-uprotocol"]
    assert (service["serviceName"], service["uEntityTypeId"], service["uEntityVersionMajor"]) == (
        "core.usubscription",
        *USUBSCRIPTION_4,
    )
    channels, operations = described["channels"], described["operations"]
    assert channels["subscriptionChanges"]["x-uprotocol"]["resourceId"] == CHANGES
    calls = {name: each for name, each in operations.items() if each["action"] == "receive"}
    assert {name: each["bindings"]["x-uprotocol"]["methodId"] for name, each in calls.items()} == METHODS
    linked = [each["channel"]["$ref"] for each in operations.values()]
    linked += [each["reply"]["channel"]["$ref"] for each in calls.values()]
    assert sorted(name.removeprefix("#/channels/") for name in linked) == sorted(channels)
    messages = [each["messages"]["protobuf"]["payload"]["schema"]["$ref"].rpartition("/")[2] for each in channels.values()]
    assert {name.removeprefix(f"{PACKAGE}.") for name in messages} == set(TABLES)
