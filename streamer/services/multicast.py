"""Receivers of multicast: who has registered for which multicast id, and which topics their devices want because of it.

A receiver is the uEntity that asks, over RPC on core.ustreamer. What counts for the router is its authority: a topic is
wanted there as long as one registration of one of its uEntities covers it, whatever ordinary subscriptions say. What was
answered is on disk. A registration outlives the catalogue: it covers what the catalogue has now.

`TABLES` go to the `StateFile`; `restore` is called after that, before the router starts.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from google.protobuf.message import Message

from streamer.routing.interest import EVERY_MESSAGE
from streamer.services.router import RouterForServices
from streamer.services.rpc import Method
from streamer.services.state import Row, StateError, StateFile, Statement
from streamer.transports.base import loadable_transports
from streamer.uprotocol.multicast import Catalogue, MulticastId
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

REGISTER, UNREGISTER, RESOLVE = 0x10, 0x11, 0x12
"""The methods' resource ids."""

REGISTRATIONS_AT_MOST = 100_000

_PAGE = 250  # topics of one answer: below 100 kB

logger = logging.getLogger("ustreamer.multicast")

OWNER = "multicast"
"""Who is behind the interest, for the router."""


class Registration(NamedTuple):
    """A uEntity that wants to hear what is fired for an id, which may have wildcards."""

    receiver: UUri
    pattern: MulticastId


def filters(answer: type[Message], topic: UUri, receiver_authority: str) -> dict[str, str]:
    """What somebody at ``receiver_authority`` subscribes to for a topic: a text for each field that an answer has for one.

    The transports name the fields. Off-vehicle brokers carry a Publish that is addressed to the receiver's authority.
    """
    texts = (
        text
        for transport in loadable_transports().values()
        for text in transport.filter_texts(topic, None, receiver_authority).items()
    )
    return {name: text for name, text in texts if name in answer.DESCRIPTOR.fields_by_name}


class Receivers:
    """The registrations, on disk and in memory, and what they come to."""

    TABLES: ClassVar[Mapping[str, str]] = {
        "multicast_receivers": """CREATE TABLE multicast_receivers (
            receiver TEXT NOT NULL,
            multicast_id TEXT NOT NULL,
            PRIMARY KEY (receiver, multicast_id)
        ) STRICT""",
    }

    def __init__(self, state: StateFile, router: RouterForServices, catalogue: Catalogue) -> None:
        self._state = state
        self._catalogue = catalogue
        self._router = router
        self._count = 0
        self._receivers: dict[tuple[str, MulticastId], set[UUri]] = {}  # by authority and id
        self._asking: dict[UUri, Counter[str]] = {}  # topic → authority → how many of its ids cover it; never 0
        self._turn = asyncio.Lock()

    def restore(self) -> None:
        """Read the registrations from disk, which is open, and tell what is wanted. Raises `StateError`. Blocks."""
        for registration in self._state.read("SELECT receiver, multicast_id FROM multicast_receivers", _registration_of):
            if registration not in self:
                self._add(registration)

    def use(self, catalogue: Catalogue) -> None:
        """From now on ids stand for these topics. Only what changes is told."""
        before, self._asking, self._catalogue = self._asking, {}, catalogue
        for authority, pattern in self._receivers:
            for topic in catalogue.expand(pattern):
                self._asking.setdefault(topic, Counter())[authority] += 1
        for topic in before.keys() | self._asking.keys():
            if before.get(topic, Counter()).keys() != self._asking.get(topic, Counter()).keys():
                self._tell(topic)

    async def register(self, wanted: Registration) -> frozenset[UUri]:
        """Have a receiver hear an id; the topics that it stands for now. It is on disk afterwards.

        Raises `UStatusError`: NOT_FOUND if it stands for none, RESOURCE_EXHAUSTED, UNAVAILABLE if the disk is.
        """
        async with self._turn:
            self._catalogue.expand_known(wanted.pattern)
            if wanted not in self:
                if self._count >= REGISTRATIONS_AT_MOST:
                    raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"there are {REGISTRATIONS_AT_MOST} registrations already")
                await self._write("INSERT OR IGNORE INTO multicast_receivers VALUES (?, ?)", wanted)
                self._add(wanted)
            return self._catalogue.expand(wanted.pattern)

    async def unregister(self, unwanted: Registration) -> None:
        """Take a registration with exactly this id away. That is on disk afterwards.

        Raises `UStatusError`: NOT_FOUND if there is none, UNAVAILABLE if the disk is.
        """
        async with self._turn:
            if unwanted not in self:
                raise UStatusError(UCode.NOT_FOUND, f"{unwanted.receiver} is not registered for {unwanted.pattern}")
            await self._write("DELETE FROM multicast_receivers WHERE receiver = ? AND multicast_id = ?", unwanted)
            self._remove(unwanted)

    def __contains__(self, registration: Registration) -> bool:
        key = registration.receiver.authority, registration.pattern
        return registration.receiver in self._receivers.get(key, ())

    def __len__(self) -> int:
        return self._count

    @property
    def topics(self) -> int:
        """How many topics are wanted."""
        return len(self._asking)

    def _add(self, registration: Registration) -> None:
        key = authority, pattern = registration.receiver.authority, registration.pattern
        holders = self._receivers.setdefault(key, set())
        holders.add(registration.receiver)
        self._count += 1
        if len(holders) > 1:
            return
        for topic in self._catalogue.expand(pattern):
            asking = self._asking.setdefault(topic, Counter())
            asking[authority] += 1
            if asking[authority] == 1:
                self._tell(topic)

    def _remove(self, registration: Registration) -> None:
        key = authority, pattern = registration.receiver.authority, registration.pattern
        holders = self._receivers[key]
        holders.remove(registration.receiver)
        self._count -= 1
        if holders:
            return
        del self._receivers[key]
        for topic in self._catalogue.expand(pattern):
            asking = self._asking[topic]
            asking[authority] -= 1
            if asking[authority]:
                continue
            del asking[authority]
            if not asking:
                del self._asking[topic]
            self._tell(topic)

    def _tell(self, topic: UUri) -> None:
        self._router.set_interest(topic, dict.fromkeys(self._asking.get(topic, ()), EVERY_MESSAGE), OWNER)

    async def _write(self, sql: str, registration: Registration) -> None:
        statement: Statement = (sql, (str(registration.receiver), str(registration.pattern)))
        try:
            await self._state.write((statement,))
        except StateError as exc:
            logger.error("multicast_unchanged error=%s", exc)
            raise UStatusError(UCode.UNAVAILABLE, "it cannot be written to disk now; nothing has changed") from exc

    # -- over uProtocol

    def methods(self) -> Mapping[int, Method]:
        """What core.ustreamer answers to, by resource id."""
        return {
            REGISTER: Method(pb.RegisterMulticastReceiverRequest, self._on_register),
            UNREGISTER: Method(pb.UnregisterMulticastReceiverRequest, self._on_unregister),
            RESOLVE: Method(pb.ResolveMulticastRequest, self._on_resolve),
        }

    async def _on_register(self, caller: UUri, asked: pb.RegisterMulticastReceiverRequest) -> Message:
        topics = await self.register(Registration(_receiver(caller), MulticastId.parse(asked.multicast_id)))
        named = sorted((str(self._catalogue.id_of(topic)), topic) for topic in topics)[asked.offset :]
        return pb.RegisterMulticastReceiverResponse(
            topics=_described(named[:_PAGE], caller.authority), has_more_records=len(named) > _PAGE
        )

    async def _on_unregister(self, caller: UUri, asked: pb.UnregisterMulticastReceiverRequest) -> Message:
        await self.unregister(Registration(_receiver(caller), MulticastId.parse(asked.multicast_id)))
        return pb.UnregisterMulticastReceiverResponse()

    async def _on_resolve(self, caller: UUri, asked: pb.ResolveMulticastRequest) -> Message:
        topic = self._catalogue.resolve(MulticastId.parse(asked.multicast_id))
        texts = filters(pb.ResolveMulticastResponse, topic, caller.authority)
        return pb.ResolveMulticastResponse(topic=uri_to_proto(topic), **texts)


def _registration_of(row: Row) -> Registration:
    try:
        return Registration(UUri.parse(row[0]), MulticastId.parse(row[1]))
    except UStatusError as exc:
        raise ValueError(exc.message) from exc


def _receiver(caller: UUri) -> UUri:
    """Who asks, if the answer to it can be remembered. Raises `UStatusError`."""
    if not caller.authority or caller.has_wildcard:
        raise UStatusError(UCode.INVALID_ARGUMENT, f"receiver {caller}: expected a uEntity with an authority, no wildcards")
    return caller


def _described(topics: Iterable[tuple[str, UUri]], receiver_authority: str) -> Iterable[pb.MulticastTopic]:
    for name, topic in topics:
        texts = filters(pb.MulticastTopic, topic, receiver_authority)
        yield pb.MulticastTopic(multicast_id=name, topic=uri_to_proto(topic), **texts)
