"""Multicast registrations: which uEntities receive which multicast ids, and the interest in topics from that.

A receiver is the uEntity that calls core.ustreamer. The router knows only authorities: one is interested in a topic as
long as a registration of one of its uEntities covers the topic, whatever subscriptions there are. A registration is
on disk before its Request is answered. It stays when catalogue or permissions change: it covers the topics that its id has
by the present catalogue, as far as its receiver may subscribe to them by the present permissions.

Its owner calls `restore` once the journal is open, before the router starts.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import ClassVar, NamedTuple

from google.protobuf.message import Message

from streamer.features.host.access import MAX_AUTHORITIES_PER_TOPIC, Access
from streamer.features.host.router import RouterForServices
from streamer.features.host.rpc import Method
from streamer.features.host.service import Service
from streamer.features.host.state import Row, StateError, StateFile, Statement
from streamer.features.multicast.ids import Catalogue, MulticastId
from streamer.journal.file import HANGS_AFTER_S
from streamer.logs.audit import DENIED, audit
from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.installed import loadable_transports
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

REGISTER, UNREGISTER, RESOLVE = 0x10, 0x11, 0x12
"""Resource ids of the methods."""

MAX_REGISTRATIONS = 100_000
MAX_OF_AUTHORITY = 10_000
MAX_OF_RECEIVER = 1000
"""The most registrations: of all receivers, of one authority, and of one receiver."""

_PAGE = 250  # most topics in one response, which stays below 100 kB

logger = logging.getLogger("ustreamer.multicast")

OWNER = "multicast"
"""The owner of this interest in topics, for the router."""


class Registration(NamedTuple):
    """A uEntity that receives what is published for a multicast id, which may have wildcards."""

    receiver: UUri
    pattern: MulticastId


def filters(response: type[Message], topic: UUri, receiver_authority: str) -> dict[str, str]:
    """Return the filter of each transport with which a uEntity at ``receiver_authority`` receives a topic.

    Keys: the fields of ``response`` that transports fill. An off-vehicle broker has a Publish under the receiver's
    authority.
    """
    texts = (
        text
        for transport in loadable_transports().values()
        for text in transport.tools.filter_texts(topic, None, receiver_authority).items()
    )
    return {name: text for name, text in texts if name in response.DESCRIPTOR.fields_by_name}


class MulticastReceivers(Service):
    """The registrations, on disk and in memory, and the interest that follows from them."""

    TABLES: ClassVar[Mapping[str, str]] = {
        "multicast_receivers": """CREATE TABLE multicast_receivers (
            receiver TEXT NOT NULL,
            multicast_id TEXT NOT NULL,
            PRIMARY KEY (receiver, multicast_id)
        ) STRICT"""
    }

    def __init__(self, state: StateFile, router: RouterForServices, catalogue: Catalogue, access: Access) -> None:
        self._state = state
        self._catalogue = catalogue
        self._router = router
        self._access = access
        self._count = 0
        self._count_at: Counter[str] = Counter()  # by authority
        self._count_of: Counter[UUri] = Counter()  # by receiver
        self._receivers: dict[tuple[str, MulticastId], set[UUri]] = {}  # by authority and id
        self._interested: dict[UUri, Counter[str]] = {}  # topic → authority → number of registrations that cover it; never 0
        self._lock = asyncio.Lock()

    def restore(self) -> None:
        """Read the registrations, and set their interest in the router. Blocks. Raises `StateError`."""
        for registration in self._state.read("SELECT receiver, multicast_id FROM multicast_receivers", _registration_of):
            if registration not in self:
                self._remember(registration)
        self._recompute_interest()

    def use(self, catalogue: Catalogue, access: Access) -> None:
        """Use this catalogue, and these permissions from now on.

        Sets the interest in the router only where it has changed.
        """
        self._catalogue, self._access = catalogue, access
        self._recompute_interest()

    def _recompute_interest(self) -> None:
        """Compute the whole interest. Permissions are checked once for each permission group of an authority."""
        before, self._interested = self._interested, {}
        for (authority, pattern), holders in self._receivers.items():
            alike: dict[Hashable, list[UUri]] = {}
            for receiver in holders:
                alike.setdefault(self._access.permission_group(receiver), []).append(receiver)
            for receivers in alike.values():
                for topic in self._topics_for(receivers[0], pattern):
                    self._interested.setdefault(topic, Counter())[authority] += len(receivers)
        for topic in before.keys() | self._interested.keys():
            if before.get(topic, Counter()).keys() != self._interested.get(topic, Counter()).keys():
                self._publish_interest(topic)

    async def register(self, registration: Registration) -> frozenset[UUri]:
        """Add a registration to memory and disk. Return the topics that its id has now.

        Raises `UStatusError`: NOT_FOUND if the id has no topic, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE if the
        disk fails.
        """
        async with self._lock:
            receiver, pattern = registration
            self._check(self._access.is_known(receiver), receiver, pattern)
            self._catalogue.expand_known(pattern, partial(self._access.may_resolve, receiver))
            topics = self._catalogue.expand(pattern)
            self._check(all(self._access.may_subscribe(receiver, topic) for topic in topics), receiver, pattern)
            if registration not in self:
                self._check_room(receiver, topics)
                await self._write("INSERT OR IGNORE INTO multicast_receivers VALUES (?, ?)", registration)
                self._add(registration)
            return self._catalogue.expand(pattern)

    def resolve(self, caller: UUri, multicast_id: MulticastId) -> UUri:
        """Return the topic of a multicast id. Raises `UStatusError`: INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED."""
        self._check(
            caller.authority == multicast_id.provider.authority or self._access.is_known(caller), caller, multicast_id
        )
        topic = self._catalogue.resolve(multicast_id, partial(self._access.may_resolve, caller))
        self._check(self._access.may_resolve(caller, topic), caller, multicast_id)
        return topic

    def _check(self, is_permitted: bool, caller: UUri, multicast_id: MulticastId) -> None:
        if not is_permitted:
            audit(DENIED, **self._access.caller(caller)._asdict(), reason=f"may not receive {multicast_id}")
            raise UStatusError(
                UCode.PERMISSION_DENIED,
                f"{caller} may not receive {multicast_id}: no route publishes all of it to {caller.authority or 'nowhere'}, "
                f"and usubscription.subscribe at {self._access.authority} does not permit it",
            )

    def _check_room(self, receiver: UUri, topics: Iterable[UUri]) -> None:
        """Check that ``receiver`` may have one more registration. Raises `UStatusError` (RESOURCE_EXHAUSTED)."""
        for count, most, who in (
            (self._count, MAX_REGISTRATIONS, "there are"),
            (self._count_at[receiver.authority], MAX_OF_AUTHORITY, f"receivers at {receiver.authority} have"),
            (self._count_of[receiver], MAX_OF_RECEIVER, f"{receiver} has"),
        ):
            if count >= most:
                raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"{who} {most} registrations already")
        if not self._access.is_named(receiver.authority):
            for topic in topics:
                interested = self._interested.get(topic, Counter())
                strangers = sum(not self._access.is_named(each) for each in interested)
                if receiver.authority not in interested and strangers >= MAX_AUTHORITIES_PER_TOPIC:
                    text = f"{topic} has receivers at {strangers} authorities that the configuration does not name"
                    raise UStatusError(UCode.RESOURCE_EXHAUSTED, text)

    async def unregister(self, registration: Registration) -> None:
        """Remove the registration with exactly this id from memory and disk.

        Raises `UStatusError`: NOT_FOUND if there is none, UNAVAILABLE if the disk fails.
        """
        async with self._lock:
            if registration not in self:
                raise UStatusError(UCode.NOT_FOUND, f"{registration.receiver} is not registered for {registration.pattern}")
            await self._write("DELETE FROM multicast_receivers WHERE receiver = ? AND multicast_id = ?", registration)
            self._remove(registration)

    def __contains__(self, registration: Registration) -> bool:
        key = registration.receiver.authority, registration.pattern
        return registration.receiver in self._receivers.get(key, ())

    def __len__(self) -> int:
        return self._count

    @property
    def topics(self) -> int:
        """Return the number of topics in which an authority is interested."""
        return len(self._interested)

    def _topics_for(self, receiver: UUri, pattern: MulticastId) -> Iterator[UUri]:
        return (topic for topic in self._catalogue.expand(pattern) if self._access.may_subscribe(receiver, topic))

    def _remember(self, registration: Registration) -> None:
        receiver, pattern = registration
        self._receivers.setdefault((receiver.authority, pattern), set()).add(receiver)
        self._count_in(receiver, 1)

    def _add(self, registration: Registration) -> None:
        self._remember(registration)
        receiver, pattern = registration
        authority = receiver.authority
        for topic in self._topics_for(receiver, pattern):
            interested = self._interested.setdefault(topic, Counter())
            interested[authority] += 1
            if interested[authority] == 1:
                self._publish_interest(topic)

    def _remove(self, registration: Registration) -> None:
        receiver, pattern = registration
        key = authority, _ = receiver.authority, pattern
        self._receivers[key].remove(receiver)
        if not self._receivers[key]:
            del self._receivers[key]
        self._count_in(receiver, -1)
        for topic in self._topics_for(receiver, pattern):
            interested = self._interested[topic]
            interested[authority] -= 1
            if interested[authority]:
                continue
            del interested[authority]
            if not interested:
                del self._interested[topic]
            self._publish_interest(topic)

    def _count_in(self, receiver: UUri, by: int) -> None:
        self._count += by
        self._count_at[receiver.authority] += by
        self._count_of[receiver] += by
        if not self._count_at[receiver.authority]:
            del self._count_at[receiver.authority]
        if not self._count_of[receiver]:
            del self._count_of[receiver]

    def _publish_interest(self, topic: UUri) -> None:
        self._router.set_interest(topic, dict.fromkeys(self._interested.get(topic, ()), EVERY_MESSAGE), OWNER)

    async def _write(self, sql: str, registration: Registration) -> None:
        statement: Statement = (sql, (str(registration.receiver), str(registration.pattern)))
        try:
            await self._state.write((statement,), HANGS_AFTER_S)
        except StateError as exc:
            logger.error("multicast_unchanged error=%s", exc)
            raise UStatusError(UCode.UNAVAILABLE, f"the change cannot be written to disk now; {exc.consequence}") from exc

    # Over uProtocol

    def methods(self) -> Mapping[int, Method]:
        """Return these methods of core.ustreamer by resource id."""
        return {
            REGISTER: Method(pb.RegisterMulticastReceiverRequest, self._on_register),
            UNREGISTER: Method(pb.UnregisterMulticastReceiverRequest, self._on_unregister),
            RESOLVE: Method(pb.ResolveMulticastRequest, self._on_resolve),
        }

    async def _on_register(self, caller: UUri, request: pb.RegisterMulticastReceiverRequest) -> Message:
        topics = await self.register(Registration(_receiver(caller), MulticastId.parse(request.multicast_id)))
        named = sorted((str(self._catalogue.id_of(topic)), topic) for topic in topics)[request.offset :]
        return pb.RegisterMulticastReceiverResponse(
            topics=_topics_of(named[:_PAGE], caller.authority), has_more_records=len(named) > _PAGE
        )

    async def _on_unregister(self, caller: UUri, request: pb.UnregisterMulticastReceiverRequest) -> Message:
        await self.unregister(Registration(_receiver(caller), MulticastId.parse(request.multicast_id)))
        return pb.UnregisterMulticastReceiverResponse()

    async def _on_resolve(self, caller: UUri, request: pb.ResolveMulticastRequest) -> Message:
        topic = self.resolve(caller, MulticastId.parse(request.multicast_id))
        texts = filters(pb.ResolveMulticastResponse, topic, caller.authority)
        return pb.ResolveMulticastResponse(topic=uri_to_proto(topic), **texts)


def _registration_of(row: Row) -> Registration:
    try:
        return Registration(_receiver(UUri.parse(row[0])), MulticastId.parse(row[1]))
    except UStatusError as exc:
        raise ValueError(exc.message) from exc


def _receiver(caller: UUri) -> UUri:
    """Return the caller if it can be registered. Raises `UStatusError`."""
    if not caller.authority or caller.has_wildcard:
        raise UStatusError(UCode.INVALID_ARGUMENT, f"receiver {caller}: expected a uEntity with an authority, no wildcards")
    return caller


def _topics_of(topics: Iterable[tuple[str, UUri]], receiver_authority: str) -> Iterable[pb.MulticastTopic]:
    for name, topic in topics:
        texts = filters(pb.MulticastTopic, topic, receiver_authority)
        yield pb.MulticastTopic(multicast_id=name, topic=uri_to_proto(topic), **texts)
