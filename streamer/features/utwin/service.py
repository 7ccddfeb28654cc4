"""core.utwin: answers with the last Publish of each topic that the streamer has accepted, and keeps them across restarts.

The journal has the last message of a topic or none: one that is published again is deleted there at once, and the new
one is written when the topic has been quiet for a while, or at the end. So a kill loses some last messages, but none comes
back that is not the last one.

A message that has expired is not found. Whoever may not subscribe to a topic may not ask for its last message either
(utwin/v2: "MUST enforce permissions associated with the Topic"). A token that a message came with is not given to others.

`SetLastMessage` is in the text of the specification and not in its proto. There is none here: the streamer sees every
Publish that flows through it.

Its owner calls `restore` once the journal is open, before the router starts.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Set
from typing import ClassVar, NamedTuple

from streamer.clock import Clock
from streamer.features.host.access import Access
from streamer.features.host.rpc import Method
from streamer.features.host.service import Service
from streamer.features.host.state import Row, StateError, StateFile, Statement
from streamer.features.utwin.config import UtwinConfig
from streamer.features.utwin.last_values import LastValue, LastValues, without_token
from streamer.journal import codec
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import utwin_v2_pb2 as pb
from streamer.uprotocol.protobuf import message_to_proto, status_to_proto, uri_from_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

logger = logging.getLogger("ustreamer.utwin")

GET_LAST_MESSAGES = 1
"""The method."""

_SAVED_AT_ONCE = 100  # messages that are converted in one turn of the event loop, and written in one transaction
_SAVED_BYTES_AT_ONCE = 1024 * 1024  # or one message, if it is larger


class _Found(NamedTuple):
    code: UCode
    text: str
    message: UMessage | None = None


class UTwin(Service):
    """The service. ``values`` are those that the router's ingresses fill."""

    TABLES: ClassVar[Mapping[str, str]] = {
        "utwin_messages": """CREATE TABLE utwin_messages (
            topic TEXT PRIMARY KEY,
            message BLOB NOT NULL,
            at_ms INTEGER NOT NULL
        ) STRICT"""
    }

    def __init__(self, state: StateFile, values: LastValues, options: UtwinConfig, access: Access, clock: Clock) -> None:
        self._state = state
        self._values = values
        self._options = options
        self._access = access
        self._clock = clock

    def own_methods(self) -> dict[int, Method]:
        """Return the methods of core.utwin."""
        return {GET_LAST_MESSAGES: Method(pb.GetLastMessagesRequest, self._get)}

    def use(self, options: UtwinConfig, access: Access, listed: Set[str]) -> None:
        """Use other bounds and permissions from now on. ``listed``: see `LastValues`."""
        self._options, self._access = options, access
        self._values.limit(options.max_topics, options.max_bytes, listed)

    def restore(self) -> None:
        """Read the messages of an earlier process. Blocks. Raises `StateError`."""
        # A replaced row is the last one again, so their order is that of arrival, also if the clock was set back.
        found = self._state.read("SELECT topic, message, at_ms FROM utwin_messages ORDER BY rowid", _of_row)
        self._values.restore(found, self._clock.wall_ms(), self._clock.monotonic_s())

    async def run(self) -> None:
        """Save the values of topics that are quiet, and delete those that are not the last ones any more; until cancelled.

        Everything that has changed is written at the end.
        """
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._options.save_s
        try:
            while True:
                try:
                    async with asyncio.timeout_at(due_s):
                        await self._values.has_outdated.wait()
                except TimeoutError:
                    await self.save(quiet_s=self._options.save_s)
                    due_s = loop.time() + self._options.save_s
                else:
                    await self._delete_outdated()
        finally:
            await self.save()

    async def save(self, quiet_s: float = 0.0) -> None:
        """Write what has changed to the journal, of topics that were last published ``quiet_s`` ago or earlier.

        What cannot be written is written the next time.
        """
        if not await self._delete_outdated():
            return
        changed = self._values.changed
        until_s = self._clock.monotonic_s() - quiet_s
        due = deque(sorted((topic for topic in changed if self._is_quiet(topic, until_s)), key=self._number_of))
        while due:
            values: dict[UUri, LastValue | None] = {}
            size = 0
            while due and len(values) < _SAVED_AT_ONCE and size < _SAVED_BYTES_AT_ONCE:
                topic = due.popleft()
                if topic in changed:
                    value = values[topic] = self._values.get(topic)
                    size += 0 if value is None else value.message.size
            try:
                await self._state.write([_statement(topic, value) for topic, value in values.items()])
            except StateError as exc:
                logger.warning("last_values_not_saved topics=%d error=%s", len(changed), exc)
                return
            for topic, value in values.items():
                self._values.was_saved(topic, value)

    async def _delete_outdated(self) -> bool:
        """Delete the messages from the journal that are not the last ones any more; return whether that was written."""
        self._values.has_outdated.clear()
        topics = list(self._values.outdated)
        try:
            await self._state.write([_statement(topic, None) for topic in topics])
        except StateError as exc:
            logger.warning("last_values_not_saved topics=%d error=%s", len(topics), exc)
            return False
        for topic in topics:
            self._values.was_deleted(topic)
        return True

    def _is_quiet(self, topic: UUri, until_s: float) -> bool:
        value = self._values.get(topic)
        return value is None or value.at_s <= until_s

    def _number_of(self, topic: UUri) -> int:
        value = self._values.get(topic)
        return 0 if value is None else value.number

    async def _get(self, caller: UUri, request: pb.GetLastMessagesRequest) -> pb.GetLastMessagesResponse:
        """Answer for each topic, in the order of the request. Raises `UStatusError` (INVALID_ARGUMENT) without topics."""
        if not request.topics.uris:
            raise UStatusError(UCode.INVALID_ARGUMENT, "topics: expected at least one")
        response = pb.GetLastMessagesResponse()
        size, most = 0, self._options.max_answer_bytes
        for asked in request.topics.uris:
            code, text, message = self._find(caller, uri_from_proto(asked))
            answer = pb.MessageResponse(topic=asked, status=status_to_proto(code, text))
            is_large = message is not None and size + message.payload_bytes > most  # a conversion copies the payload
            if message is not None and not is_large:
                answer.message.CopyFrom(message_to_proto(message))
            if is_large or size + answer.ByteSize() > most:
                text = f"the answer would have more than {most} bytes: ask for fewer topics"
                answer = pb.MessageResponse(topic=asked, status=status_to_proto(UCode.RESOURCE_EXHAUSTED, text))
            size += answer.ByteSize()
            response.responses.append(answer)
        return response

    def _find(self, caller: UUri, topic: UUri) -> _Found:
        try:
            topic.check()
        except ValueError as exc:
            return _Found(UCode.INVALID_ARGUMENT, str(exc))
        if topic.has_wildcard or not topic.is_topic or not topic.authority:
            return _Found(UCode.INVALID_ARGUMENT, f"{topic}: expected a topic with its authority, without wildcards")
        if not self._access.may_subscribe(caller, topic):
            return _Found(UCode.PERMISSION_DENIED, f"{caller} may not subscribe to {topic}")
        value = self._values.get(topic)
        if value is None or not self._access.may_be_published(value.message.attributes):
            return _Found(UCode.NOT_FOUND, f"{topic}: no message since the start, or it was forgotten")
        if value.message.is_expired(self._clock.wall_ms(), self._clock.monotonic_s() - value.at_s):
            return _Found(UCode.NOT_FOUND, f"{topic}: the last message has expired")
        return _Found(UCode.OK, "", without_token(value.message))

    def fresh(self) -> Iterator[tuple[UUri, LastValue]]:
        """Yield every topic with its last value, unless that has expired or may no longer be published."""
        now_ms, now_s, accepts = self._clock.wall_ms(), self._clock.monotonic_s(), self._access.may_be_published
        return (
            (topic, value)
            for topic, value in self._values.listed()
            if not value.message.is_expired(now_ms, now_s - value.at_s) and accepts(value.message.attributes)
        )


def _statement(topic: UUri, value: LastValue | None) -> Statement:
    if value is None:
        return "DELETE FROM utwin_messages WHERE topic = ?", (str(topic),)
    packed = codec.pack(without_token(value.message))  # with the identity of its sender, which permissions may ask for
    return "INSERT OR REPLACE INTO utwin_messages (topic, message, at_ms) VALUES (?, ?, ?)", (
        str(topic),
        packed,
        value.at_ms,
    )


def _of_row(row: Row) -> tuple[UMessage, int]:
    topic, packed, at_ms = row
    message = codec.unpack(packed)
    if str(message.attributes.source) != topic or message.attributes.problems:
        raise ValueError("not the message of its topic")
    return message, at_ms
