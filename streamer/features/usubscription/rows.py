"""The tables of the service in the journal: writes a `Change` into them, and reads them.

Reading refuses a row that this module does not write, such as a topic with a wildcard for its authority: messages about it
could not be sent or written, and the service would repeat that without end.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.message import DecodeError

from streamer.features.host.state import Row, StateFile, Statement
from streamer.features.usubscription.entries import (
    NEWEST,
    OLDEST,
    Change,
    Observer,
    SubscribeAttributes,
    Subscription,
    SubscriptionState,
)
from streamer.features.usubscription.remote_topic import OpenCommand, RemoteTopic
from streamer.features.usubscription.wire import check_topic
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto
from streamer.uprotocol.status import UStatusError
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, is_authority
from streamer.uprotocol.uuid import check_id

TABLES: dict[str, str] = {
    "usubscription_subscriptions": """CREATE TABLE usubscription_subscriptions (
        number INTEGER PRIMARY KEY, topic TEXT NOT NULL, subscriber TEXT NOT NULL, via TEXT NOT NULL,
        standing INTEGER NOT NULL, expire_ms INTEGER, sample_period_ms INTEGER, details BLOB NOT NULL
    ) STRICT""",
    "usubscription_observers": """CREATE TABLE usubscription_observers (
        number INTEGER PRIMARY KEY, topic TEXT NOT NULL, uri TEXT NOT NULL, via TEXT NOT NULL
    ) STRICT""",
    # The version of the service that a subscriber called last, if it was not 3, which is all that 0.1 has
    "usubscription_versions": """CREATE TABLE usubscription_versions (
        topic TEXT NOT NULL, subscriber TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (topic, subscriber)
    ) STRICT""",
    # Commands that may still arrive, as JSON: [[id, subscribe, epoch, deadline_ms], ...]
    "usubscription_remotes": """CREATE TABLE usubscription_remotes (
        topic TEXT PRIMARY KEY, wanted INTEGER NOT NULL, standing INTEGER NOT NULL, is_confirmed INTEGER NOT NULL,
        epoch INTEGER NOT NULL, period_ms INTEGER NOT NULL, answered_ms INTEGER NOT NULL, commands TEXT NOT NULL
    ) STRICT""",
    # Serialized UMessages that the router may not have yet
    "usubscription_outbox": "CREATE TABLE usubscription_outbox (number INTEGER PRIMARY KEY, message BLOB NOT NULL) STRICT",
}

_NUMBERS = range(1 << 62)
"""The valid numbers of rows, with room for later ones."""

_TIMES_MS = range(-(1 << 62), (1 << 62) + 1)
UINT32 = range(1 << 32)

_FLUSHED = ("usubscription_subscriptions", "usubscription_versions", "usubscription_observers", "usubscription_remotes")


def statements(change: Change, remotes: Callable[[UUri], RemoteTopic | None]) -> list[Statement]:
    """Return the statements that write ``change``, with the present state of its entries."""
    found: list[Statement] = [(f"DELETE FROM {table}", ()) for table in _FLUSHED] if change.is_flushed else []
    for number, entry in change.subscriptions.items():
        found += _no_subscription(number) if entry is None else _subscription(entry)
    for number, observer in change.observers.items():
        found.append(_delete("observers", "number", number) if observer is None else _observer(observer))
    for topic in sorted(change.remotes):
        remote = remotes(topic)
        found.append(_delete("remotes", "topic", str(topic)) if remote is None else _remote(remote))
    return found


def keep_message(number: int, message: bytes) -> Statement:
    """Return the statement that adds a message to the outbox. It replaces an unreadable one with the same number."""
    return "INSERT OR REPLACE INTO usubscription_outbox VALUES (?, ?)", (number, message)


def delete_message(number: int) -> Statement:
    """Return the statement that deletes a message from the outbox."""
    return _delete("outbox", "number", number)


def subscriptions(file: StateFile) -> list[Subscription]:
    """Read the subscriptions in the order of their numbers. An unknown version becomes the oldest. Raises `StateError`."""
    return file.read(
        "SELECT number, topic, subscriber, via, standing, expire_ms, sample_period_ms, details, version"
        " FROM usubscription_subscriptions LEFT JOIN usubscription_versions USING (topic, subscriber) ORDER BY number",
        lambda row: Subscription(
            number=within("number", row[0], _NUMBERS),
            topic=_topic(row[1]),
            subscriber=_entity("subscriber", row[2]),
            via=_authority(row[3]),
            state=SubscriptionState(row[4]),
            attributes=SubscribeAttributes(
                None if row[5] is None else within("expire_ms", row[5], _TIMES_MS),
                None if row[6] is None else within("sample_period_ms", row[6], UINT32),
                _details(row[7]),
            ),
            version=NEWEST if row[8] == NEWEST else OLDEST,
        ),
    )


def observers(file: StateFile) -> list[Observer]:
    """Read the observers in the order of their numbers. Raises `StateError`."""
    return file.read(
        "SELECT number, topic, uri, via FROM usubscription_observers ORDER BY number",
        lambda row: Observer(
            within("number", row[0], _NUMBERS),
            _topic(row[1]) if row[1] else None,
            _entity("uri", row[2]),
            _authority(row[3]),
        ),
    )


def remotes(file: StateFile, timeout_ms: int) -> list[RemoteTopic]:
    """Read the remote topics in the order in which they were written. Raises `StateError`."""

    def one(row: Row) -> RemoteTopic:
        remote = RemoteTopic(
            _topic(row[0]),
            timeout_ms,
            wanted=bool(row[1]),
            state=SubscriptionState(row[2]),
            is_confirmed=bool(row[3]),
            epoch=within("epoch", row[4], _TIMES_MS),
            period_ms=within("period_ms", row[5], UINT32),
            answered_ms=within("answered_ms", row[6], _TIMES_MS),
        )
        for name, subscribe, epoch, deadline_ms in json.loads(row[7]):
            command = OpenCommand(
                check_id(bytes.fromhex(name)),
                bool(subscribe),
                within("commands: epoch", epoch, _TIMES_MS),
                within("commands: deadline_ms", deadline_ms, _TIMES_MS),
            )
            remote.open_commands[command.id] = command
        return remote

    return file.read(
        "SELECT topic, wanted, standing, is_confirmed, epoch, period_ms, answered_ms, commands"
        " FROM usubscription_remotes ORDER BY rowid",
        one,
    )


def outbox(file: StateFile) -> list[tuple[int, UMessage]]:
    """Read the messages that may not have been sent, with their numbers, in order. Raises `StateError`."""

    def one(row: Row) -> tuple[int, UMessage]:
        try:
            return within("number", row[0], _NUMBERS), message_from_proto(v1.UMessage.FromString(row[1])).check()
        except DecodeError as exc:
            raise ValueError(str(exc)) from exc

    return file.read("SELECT number, message FROM usubscription_outbox ORDER BY number", one)


def within(what: str, value: Any, expected: range) -> int:
    """Return ``value`` if it is in the expected range. Raises ValueError."""
    if type(value) is not int or value not in expected:
        raise ValueError(f"{what} {value!r}: expected a whole number from {expected[0]} to {expected[-1]}")
    return value


def _topic(text: str) -> UUri:
    """Return a topic that can be subscribed to. Raises ValueError."""
    try:
        return check_topic(UUri.parse(text))
    except UStatusError as exc:
        raise ValueError(exc.message) from exc


def _entity(what: str, text: str) -> UUri:
    """Return a uEntity that can be notified. Raises ValueError."""
    found = UUri.parse(text)
    if not found.authority or found.has_wildcard or not found.is_entity:
        raise ValueError(f"{what} {text!r}: expected a uEntity (resource 0) with an authority, no wildcards")
    return found


def _authority(text: str) -> str:
    if text == ANY_AUTHORITY or not is_authority(text):
        raise ValueError(f"via {text!r}: expected an authority")
    return text


def _details(packed: bytes) -> bytes:
    """Return the subscriber's own details, which are fields of a `SubscribeAttributes`. Raises ValueError."""
    try:
        pb.SubscribeAttributes.FromString(packed)
    except DecodeError as exc:
        raise ValueError(f"details: {exc}") from exc
    return packed


def _delete(table: str, key: str, value: int | str) -> Statement:
    return f"DELETE FROM usubscription_{table} WHERE {key} = ?", (value,)


def _no_subscription(number: int) -> list[Statement]:
    about = "SELECT topic, subscriber FROM usubscription_subscriptions WHERE number = ?"
    forget = f"DELETE FROM usubscription_versions WHERE (topic, subscriber) IN ({about})"
    return [(forget, (number,)), _delete("subscriptions", "number", number)]


def _subscription(entry: Subscription) -> list[Statement]:
    attributes = entry.attributes
    about = str(entry.topic), str(entry.subscriber)
    version: Statement = "DELETE FROM usubscription_versions WHERE topic = ? AND subscriber = ?", about
    if entry.version != OLDEST:
        version = _replace("versions", (*about, entry.version))
    values = _replace(
        "subscriptions",
        (
            entry.number,
            *about,
            entry.via,
            int(entry.state),
            attributes.expire_ms,
            attributes.sample_period_ms,
            attributes.details,
        ),
    )
    return [values, version]


def _observer(observer: Observer) -> Statement:
    topic = "" if observer.topic is None else str(observer.topic)
    return _replace("observers", (observer.number, topic, str(observer.uri), observer.via))


def _remote(remote: RemoteTopic) -> Statement:
    commands = [[each.id.hex(), each.subscribe, each.epoch, each.deadline_ms] for each in remote.open_commands.values()]
    return _replace(
        "remotes",
        (
            str(remote.topic),
            remote.wanted,
            int(remote.state),
            remote.is_confirmed,
            remote.epoch,
            remote.period_ms,
            remote.answered_ms,
            json.dumps(commands),
        ),
    )


def _replace(table: str, values: Iterable[Any]) -> Statement:
    values = tuple(values)
    marks = ", ".join("?" * len(values))
    return f"INSERT OR REPLACE INTO usubscription_{table} VALUES ({marks})", values
