"""The versions of core.usubscription: a module with all that is specific to it for each, with the same interface."""

from collections.abc import Mapping
from typing import Protocol

from google.protobuf.message import Message

from streamer.features.usubscription import v3, v4
from streamer.features.usubscription.entries import Command, CommandResponse, ReceivedUpdate, Update
from streamer.features.usubscription.followed import Page, Query, Relation
from streamer.features.usubscription.requests import VersionMethod
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import EntityId


class Version(Protocol):
    """The interface of each version's module."""

    ENTITY: EntityId
    METHODS: dict[int, VersionMethod]
    FETCH_SUBSCRIPTIONS: int
    REGISTER: int
    UNREGISTER: int
    REGISTERS_BY_TOPIC: bool
    """Whether a registration is for the changes of one topic; False: of all topics."""

    def reports(self, update: Update) -> bool: ...

    def update_message(self, now_ms: int, update: Update) -> UMessage: ...

    def command_message(self, authority: str, command: Command) -> UMessage: ...

    def command_response(self, message: UMessage) -> CommandResponse: ...

    def received_update(self, message: UMessage, ourselves: UUri) -> ReceivedUpdate | None: ...

    def query_request(self, query: Query) -> Message: ...

    def page(self, message: UMessage) -> Page: ...

    def registration(self, name: UUri | None) -> Message: ...

    def followed_change(self, message: UMessage) -> tuple[Relation, int | None]: ...


VERSIONS: Mapping[int, Version] = {3: v3, 4: v4}
