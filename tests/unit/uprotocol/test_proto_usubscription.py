"""usubscription_v3.proto matches the tables of uSubscription version 3: names, numbers, types, presence, methods."""

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from streamer.features.usubscription import v3
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION

PACKAGE = "uprotocol.core.usubscription.v3"
URI = "uprotocol.v1.UUri"
ANY = "google.protobuf.Any"
STRING, UINT32 = FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_UINT32
PLAIN, OPTIONAL, MANY = "plain", "optional", "many"  # a message field is always optional


def ours(name: str) -> str:
    return f"{PACKAGE}.{name}"


# number: (name, type or the full name of a message or enum, how often)
TABLES = {
    "SubscribeAttributes": {
        1: ("expire", "google.protobuf.Timestamp", OPTIONAL),
        2: ("details", ANY, MANY),
        3: ("sample_period_ms", UINT32, OPTIONAL),
    },
    "SubscriberInfo": {1: ("uri", URI, OPTIONAL)},
    "SubscriptionStatus": {1: ("state", ours("SubscriptionStatus.State"), PLAIN), 3: ("message", STRING, PLAIN)},
    "EventDeliveryConfig": {
        1: ("id", STRING, PLAIN),
        2: ("type", STRING, PLAIN),
        3: ("attributes", ours("EventDeliveryConfig.AttributesEntry"), MANY),
    },
    "SubscriptionRequest": {1: ("topic", URI, OPTIONAL), 3: ("attributes", ours("SubscribeAttributes"), OPTIONAL)},
    "SubscriptionResponse": {
        1: ("status", ours("SubscriptionStatus"), OPTIONAL),
        2: ("config", ours("EventDeliveryConfig"), OPTIONAL),
        3: ("topic", URI, OPTIONAL),
    },
    "UnsubscribeRequest": {1: ("topic", URI, OPTIONAL)},
    "UnsubscribeResponse": {},
    "FetchSubscribersRequest": {1: ("topic", URI, OPTIONAL), 2: ("offset", UINT32, OPTIONAL)},
    "FetchSubscribersResponse": {
        1: ("subscribers", ours("SubscriberInfo"), MANY),
        2: ("has_more_records", FieldDescriptor.TYPE_BOOL, OPTIONAL),
    },
    "FetchSubscriptionsRequest": {
        1: ("topic", URI, OPTIONAL),
        2: ("subscriber", ours("SubscriberInfo"), OPTIONAL),
        3: ("offset", UINT32, OPTIONAL),
    },
    "FetchSubscriptionsResponse": {
        1: ("subscriptions", ours("Subscription"), MANY),
        2: ("has_more_records", FieldDescriptor.TYPE_BOOL, OPTIONAL),
    },
    "Subscription": {
        1: ("topic", URI, OPTIONAL),
        2: ("subscriber", ours("SubscriberInfo"), OPTIONAL),
        3: ("status", ours("SubscriptionStatus"), OPTIONAL),
        4: ("attributes", ours("SubscribeAttributes"), OPTIONAL),
        5: ("config", ours("EventDeliveryConfig"), OPTIONAL),
    },
    "NotificationsRequest": {1: ("topic", URI, OPTIONAL)},
    "NotificationsResponse": {},
    "Update": {
        1: ("topic", URI, OPTIONAL),
        2: ("subscriber", ours("SubscriberInfo"), OPTIONAL),
        3: ("status", ours("SubscriptionStatus"), OPTIONAL),
        4: ("attributes", ours("SubscribeAttributes"), OPTIONAL),
    },
    "ResetRequest": {1: ("reason", ours("ResetRequest.Reason"), OPTIONAL)},
    "ResetRequest.Reason": {1: ("code", ours("ResetRequest.Reason.Code"), PLAIN), 2: ("message", STRING, OPTIONAL)},
    "ResetResponse": {},
}


def descriptor(name: str) -> Descriptor:
    outer, _, inner = name.partition(".")
    found = pb.DESCRIPTOR.message_types_by_name[outer]
    return found.nested_types_by_name[inner] if inner else found


@pytest.mark.parametrize("name", TABLES)
def test_fields_are_the_contract(name: str) -> None:
    found = {}
    for field in descriptor(name).fields:
        kind = field.message_type or field.enum_type
        how_often = MANY if field.is_repeated else OPTIONAL if field.has_presence else PLAIN
        found[field.number] = (field.name, kind.full_name if kind else field.type, how_often)
    assert found == TABLES[name]


def test_there_are_no_other_messages() -> None:
    assert pb.DESCRIPTOR.package == PACKAGE
    assert set(pb.DESCRIPTOR.message_types_by_name) == {name for name in TABLES if "." not in name}


def test_states_and_reasons_are_numbered_by_the_contract() -> None:
    states = descriptor("SubscriptionStatus").enum_types_by_name["State"].values
    assert [(value.number, value.name) for value in states] == [
        (0, "UNSUBSCRIBED"),
        (1, "SUBSCRIBE_PENDING"),
        (2, "SUBSCRIBED"),
        (3, "UNSUBSCRIBE_PENDING"),
    ]
    codes = descriptor("ResetRequest.Reason").enum_types_by_name["Code"].values
    assert [(value.number, value.name) for value in codes] == [
        (0, "UNSPECIFIED"),
        (1, "FACTORY_RESET"),
        (2, "CORRUPTED_DATA"),
    ]


def test_a_fetch_is_for_a_topic_or_a_subscriber() -> None:
    (choice,) = [one for one in descriptor("FetchSubscriptionsRequest").oneofs if not one.name.startswith("_")]
    assert [field.number for field in choice.fields] == [1, 2]


def test_methods_and_topic_have_the_numbers_of_the_contract() -> None:
    assert (*USUBSCRIPTION, CHANGES) == (0, 3, 0x8000)
    assert {
        "Subscribe": v3.SUBSCRIBE,
        "Unsubscribe": v3.UNSUBSCRIBE,
        "FetchSubscriptions": v3.FETCH_SUBSCRIPTIONS,
        "RegisterForNotifications": v3.REGISTER,
        "UnregisterForNotifications": v3.UNREGISTER,
        "FetchSubscribers": v3.FETCH_SUBSCRIBERS,
        "Reset": v3.RESET,
    } == {
        "Subscribe": 1,
        "Unsubscribe": 2,
        "FetchSubscriptions": 3,
        "RegisterForNotifications": 6,
        "UnregisterForNotifications": 7,
        "FetchSubscribers": 8,
        "Reset": 9,
    }
