"""Decodes PUBLISH packets into uProtocol messages (uP-L1 `mqtt_5.adoc`): the opposite of `wire`.

Pure: no event loop, no clock, no logger. The common part of the messages of a flow is decoded once per topic and set of user
properties, and cached, with the result of the check that the topic agrees with the addresses. A broker can restrict the
topics of its clients, so a message whose address does not match its topic is forged. An address without authority gets the
topic's.
"""

from sys import getsizeof
from typing import TypeVar

from streamer.transports.authorities import completed
from streamer.transports.errors import Malformed, MalformedPacketError, check_token, wrong_address
from streamer.transports.mqtt5.publish import Publish
from streamer.transports.mqtt5.wire import (
    COMMSTATUS,
    ID,
    MARKER,
    PAYLOAD_FORMAT,
    PERMISSION_LEVEL,
    PRIORITY,
    REQID,
    SINK,
    SOURCE,
    TOKEN,
    TRACEPARENT,
    TTL,
    TYPE,
    TYPES,
    Property,
    Structure,
    topic_for,
)
from streamer.uprotocol.cache import Cache
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import UNPROVEN, Attributes, Provenance, UMessage, UPayloadFormat, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UriError, UUri
from streamer.uprotocol.uuid import UuidError, parse_id

T = TypeVar("T")

Arrived = tuple[str, tuple[Property, ...], int | None, str | None]
"""The common part of the received messages of one flow: topic, user properties, expiry interval, content type."""

_PRIORITIES = {priority.name: priority for priority in UPriority if priority}
_FORMATS = {str(int(item)): item for item in UPayloadFormat}
_CODES = {str(int(code)): code for code in UCode}

_UINT32_MAX = 0xFFFF_FFFF
_PAIR_BYTES = 64  # of a tuple of two


class PublishDecoder:
    """Decodes the packets of one endpoint, whose topics have one structure, and which has ``flows``.

    ``own_authority`` is the endpoint's own. A token of more than ``max_token_bytes`` is refused. The user property named
    ``identity_property`` was added by the broker, with the identity of the packet's sender.
    """

    def __init__(
        self,
        structure: Structure,
        own_authority: str,
        max_token_bytes: int,
        flows: Flows,
        identity_property: str | None = None,
    ) -> None:
        self._structure = structure
        self._own_authority = own_authority
        self._max_token_bytes = max_token_bytes
        self._identity_property = identity_property
        self._known: Cache[Arrived, Attributes] = Cache(_bytes_of)
        self._flows = flows

    def decode(self, packet: Publish) -> UMessage:
        """Return the message in a PUBLISH packet. Raises `MalformedPacketError`; the rules per type are not checked here.

        Messages of one flow share their `Attributes`. An empty payload without a payload format is no payload.
        """
        properties = packet.user_properties
        content_type = packet.content_type
        # Every known sender puts the id second, behind the marker, but the specification does not demand that.
        usual = len(properties) > 1 and properties[1][0] == ID and properties[0][0] == MARKER
        index = 1 if usual else _find_id(properties)
        rest = (*properties[:index], *properties[index + 1 :])
        arrived = (packet.topic, rest, packet.message_expiry_interval, content_type)
        reqid = packet.correlation_data
        attributes = self._known.get(arrived) or self._with_carried(arrived, reqid is None)
        if reqid is not None:
            if len(reqid) != 16:
                raise MalformedPacketError(Malformed.ID, f"correlation data of {len(reqid)} bytes: expected 16")
            attributes = attributes.carrying(reqid, attributes.token, attributes.traceparent)
        try:
            uuid = parse_id(properties[index][1])
        except UuidError as exc:
            raise MalformedPacketError(Malformed.ID, str(exc)) from None
        return UMessage(uuid, attributes, packet.payload or empty_payload(packet))

    def _with_carried(self, arrived: Arrived, reads_reqid: bool) -> Attributes:
        """Return the attributes of a packet that has a token or traceparent, or whose flow is not cached.

        ``reads_reqid``: the packet has no correlation data, so the request's id may be a user property.
        """
        token = traceparent = reqid = None
        properties: list[Property] = []
        topic, rest, expiry_s, content_type = arrived
        for item in rest:
            key, value = item
            if key == TOKEN:
                token = value if token is None else token
            elif key == TRACEPARENT:
                traceparent = value if traceparent is None else traceparent
            elif key == REQID:
                reqid = value if reqid is None else reqid
            else:
                properties.append(item)
        if token is not None:
            check_token(token, self._max_token_bytes)
        arrived = (topic, tuple(properties), expiry_s, content_type)
        try:
            shared = self._known[arrived]
        except KeyError:
            shared = self._learn(arrived)
        return shared.carrying(_reqid(reqid) if reqid is not None and reads_reqid else None, token, traceparent)

    def _learn(self, arrived: Arrived) -> Attributes:
        topic, properties, _, _ = arrived
        identity = None if self._identity_property is None else _identity(properties, self._identity_property)
        attributes = _attributes(arrived, identity)
        if not self._agrees(attributes, topic):
            raise wrong_address(attributes.source, attributes.sink, topic)
        levels = topic.split("/")
        attributes = completed(attributes, levels[0], levels[len(levels) // 2])  # the second half is the sink's
        # The broker counts the expiry interval down, so packets that differ in it are still one flow.
        attributes = self._flows.of(attributes)
        self._known.remember(arrived, attributes)
        return attributes

    def _agrees(self, attributes: Attributes, topic: str) -> bool:
        """Return whether a message may be on a topic. An address without authority is local to the sender, or to us."""
        sender = topic.partition("/")[0]
        try:
            return topic in (
                topic_for(attributes, self._structure, sender),
                topic_for(attributes, self._structure, self._own_authority),
            )
        except ValueError:
            return False


def _bytes_of(arrived: Arrived) -> int:
    topic, properties, _, _ = arrived
    return getsizeof(topic) + sum(_PAIR_BYTES + getsizeof(key) + getsizeof(value) for key, value in properties)


def _identity(properties: tuple[Property, ...], name: str) -> str | None:
    found = [value for key, value in properties if key == name]
    if len(found) > 1:  # one of them is not the broker's
        raise MalformedPacketError(Malformed.IDENTITY, f"{len(found)} user properties {name!r}: expected the broker's own")
    return found[0] if found else None


def empty_payload(packet: Publish) -> bytes | None:
    """Return what an empty payload field means in a packet: b"" if the packet has a payload format, else None."""
    has_format = packet.content_type is not None or any(key == PAYLOAD_FORMAT for key, _ in packet.user_properties)
    return b"" if has_format else None


def _reqid(text: str) -> bytes:
    try:
        return parse_id(text)
    except UuidError as exc:
        raise MalformedPacketError(Malformed.ID, f"request id (user property {REQID}): {exc}") from None


def _find_id(properties: list[Property]) -> int:
    for index, (key, _) in enumerate(properties):
        if key == ID:
            return index
    _check_marker(dict(reversed(properties)))  # a packet that is not uProtocol at all is reported as that
    raise MalformedPacketError(Malformed.ID, "no id (user property 1)")


def _check_marker(values: dict[str, str]) -> None:
    marker = values.get(MARKER)
    if marker is None:
        raise MalformedPacketError(Malformed.MARKER, "no user property uP")
    if marker.partition(".")[0] != "1":
        raise MalformedPacketError(Malformed.VERSION, f"uP {marker[:64]!r}: expected major version 1")


def _attributes(arrived: Arrived, identity: str | None) -> Attributes:
    _, properties, expiry_s, content_type = arrived
    values = dict(reversed(properties))  # of equal keys the first counts
    _check_marker(values)
    kind = _look_up(TYPES, values, TYPE, "type")
    if kind is None:
        raise MalformedPacketError(Malformed.CODE, "no type (user property 2)")
    source = _uri(values, SOURCE, "source")
    if source is None:
        raise MalformedPacketError(Malformed.URI, "no source (user property 3)")
    ttl = _number(values, TTL, "ttl")
    if ttl is None and expiry_s is not None:
        ttl = expiry_s * 1000
        if ttl > _UINT32_MAX:
            raise MalformedPacketError(Malformed.NUMBER, f"message expiry interval {ttl // 1000} s: beyond a ttl")
    payload_format = UPayloadFormat.UNSPECIFIED
    if (number := values.get(PAYLOAD_FORMAT) if content_type is None else content_type) is not None:
        payload_format = _FORMATS.get(number) or _bad_format(number)
    return Attributes(
        kind,
        source,
        _uri(values, SINK, "sink"),
        priority=_look_up(_PRIORITIES, values, PRIORITY, "priority") or UPriority.UNSPECIFIED,
        ttl=ttl,
        permission_level=_number(values, PERMISSION_LEVEL, "permission level"),
        commstatus=_look_up(_CODES, values, COMMSTATUS, "commstatus"),
        payload_format=payload_format,
        provenance=UNPROVEN if identity is None else Provenance(identity),
    )


def _bad_format(number: str) -> UPayloadFormat:
    if number == "0":
        return UPayloadFormat.UNSPECIFIED
    raise MalformedPacketError(Malformed.CODE, f"content type {number[:64]!r}: expected a payload format number")


def _look_up(table: dict[str, T], values: dict[str, str], key: str, name: str) -> T | None:
    text = values.get(key)
    if text is None:
        return None
    found = table.get(text)
    if found is None:
        raise MalformedPacketError(Malformed.CODE, f"unknown {name} {text[:64]!r}")
    return found


def _uri(values: dict[str, str], key: str, name: str) -> UUri | None:
    text = values.get(key)
    if text is None:
        return None
    try:
        return UUri.parse(text)
    except UriError as exc:
        raise MalformedPacketError(Malformed.URI, f"{name}: {str(exc)[:300]}") from None


def _number(values: dict[str, str], key: str, name: str) -> int | None:
    text = values.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _UINT32_MAX):
        raise MalformedPacketError(Malformed.NUMBER, f"{name} {text[:64]!r}: expected a decimal number of 32 bits")
    return int(text)
