"""Other devices' uSubscription services and the way to them: late, lost, out of order, with Updates of their own. Pure."""

import random
from dataclasses import dataclass, field

from streamer.uprotocol.message import Options, UMessage, UMessageType, UPayloadFormat, notification, response
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb4
from streamer.uprotocol.protobuf import status_to_proto, uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import created_ms
from tests.fault.services_model import LEAVING, OWN, PENDING, SUBSCRIBED, UNSUBSCRIBED, Answered, Hint

US = UUri(OWN, 0, 3, 0)
SUBSCRIBE, UNSUBSCRIBE = 1, 2
TIMEOUT_MS = 300_000
UNDELIVERED = (UCode.UNAVAILABLE, UCode.DEADLINE_EXCEEDED)

Post = tuple[UMessage, Answered | Hint]
"""A message for our service, and what it means."""


@dataclass(eq=False)
class Command:
    """A Request of ours. ``is_open``: neither carried out nor lost."""

    message: UMessage
    topic: UUri
    subscribe: bool
    run_number: int
    version: int
    is_twin: bool
    is_open: bool = True
    is_answered: bool = False


@dataclass
class RemoteServices:
    """``truth``: how we stand to each topic in their books."""

    chance: random.Random
    truth: dict[UUri, int] = field(default_factory=dict)
    commands: dict[UUri, list[Command]] = field(default_factory=dict)
    late: list[tuple[Command, UMessage, Answered]] = field(default_factory=list)
    _ids: set[bytes] = field(default_factory=set)

    def take(self, message: UMessage, run_number: int) -> Command:
        """A Request has left us."""
        attributes = message.attributes
        assert attributes.sink is not None
        assert attributes.type is UMessageType.REQUEST
        assert attributes.source == US, "the subscriber of a remote request is our own service (004 §4.1, §4.2)"
        assert (attributes.ttl or 0) >= TIMEOUT_MS, "at least five minutes (004 §8)"
        subscribe = attributes.sink.resource == SUBSCRIBE
        version = attributes.sink.version
        topic = uri_from_proto(pb.UnsubscribeRequest.FromString(message.payload or b"").topic)  # the same field in all
        assert attributes.sink == UUri(topic.authority, 0, version, SUBSCRIBE if subscribe else UNSUBSCRIBE)
        command = Command(message, topic, subscribe, run_number, version, self._is_twin(message, topic, subscribe, version))
        if message.id not in self._ids:  # a message that is sent again is not a new command
            self._ids.add(message.id)
            self.commands.setdefault(topic, []).append(command)
        return command

    def _is_twin(self, message: UMessage, topic: UUri, subscribe: bool, version: int) -> bool:
        """Whether it says in another version what the one before it says: which of the two counts is not known here."""
        commands = self.commands.get(topic, [])
        if not commands or commands[-1].version == version or commands[-1].subscribe is not subscribe:
            return False
        return created_ms(message.id) < created_ms(commands[-1].message.id) + TIMEOUT_MS

    def open(self, now_ms: int) -> list[Command]:
        """What is on its way still, in the order of being sent."""
        every = [command for commands in self.commands.values() for command in commands if command.is_open]
        for command in every:
            command.is_open = not command.message.is_expired(now_ms, 0)
        return sorted((command for command in every if command.is_open), key=lambda each: created_ms(each.message.id))

    def act(self, now_ms: int) -> Post | None:
        """Something happens over there; what comes here of it, if anything."""
        roll = self.chance.random()
        if self.late and roll < 0.25:
            command, message, meaning = self.late.pop(self.chance.randrange(len(self.late)))
            return message, self._sure(command, meaning, message, now_ms)
        if roll < 0.35:
            return self._say(now_ms)
        commands = self.open(now_ms)
        if not commands:
            return None
        command = commands[0 if self.chance.random() < 0.6 else self.chance.randrange(len(commands))]
        command.is_open = False
        fate = self.chance.random()
        if fate < 0.12:
            return None  # lost on the way
        if fate < 0.22:
            return self._answer(command, now_ms, self.chance.choice(UNDELIVERED))
        found = self.carry_out(command, now_ms, self.chance.choices((SUBSCRIBED, PENDING, UNSUBSCRIBED), (70, 15, 15))[0])
        if fate < 0.34:
            return None  # the answer is lost
        if fate < 0.55:
            self.late.append((command, *found))  # type: ignore[arg-type]
            return None
        return found

    def carry_out(self, command: Command, now_ms: int, state: int = SUBSCRIBED) -> Post:
        """Do it and answer."""
        command.is_open = False
        if not command.subscribe:
            self.truth[command.topic] = UNSUBSCRIBED
            return self._answer(command, now_ms, UCode.OK)
        if self.truth.get(command.topic) == SUBSCRIBED:
            state = SUBSCRIBED
        self.truth[command.topic] = state
        if state == UNSUBSCRIBED and self.chance.random() < 0.5:
            return self._answer(command, now_ms, UCode.PERMISSION_DENIED)
        return self._answer(command, now_ms, UCode.OK, state)

    def hint(self, topic: UUri, state: int, now_ms: int, is_sure: bool = False) -> Post:
        """An Update about ourselves."""
        assert state != LEAVING
        self.truth[topic] = state
        proto = pb.Update(topic=uri_to_proto(topic), subscriber=pb.SubscriberInfo(uri=uri_to_proto(US)))
        proto.status.SetInParent()
        proto.status.state = state  # type: ignore[assignment]
        source = UUri(topic.authority, 0, 3, 0x8000)
        options = Options(payload_format=UPayloadFormat.PROTOBUF)
        return notification(now_ms, source, US, proto.SerializeToString(), options), Hint(topic, state, is_sure)

    def _say(self, now_ms: int) -> Post | None:
        waiting = [topic for topic, state in self.truth.items() if state == PENDING]
        held = [topic for topic, state in self.truth.items() if state == SUBSCRIBED]
        if waiting:
            return self.hint(self.chance.choice(waiting), self.chance.choice((SUBSCRIBED, SUBSCRIBED, UNSUBSCRIBED)), now_ms)
        if held and self.chance.random() < 0.3:
            return self.hint(self.chance.choice(held), UNSUBSCRIBED, now_ms)
        return None

    def _answer(self, command: Command, now_ms: int, code: UCode, state: int | None = None) -> Post:
        form = UPayloadFormat.PROTOBUF
        if code is not UCode.OK:
            payload = status_to_proto(code, "not now").SerializeToString()
        elif command.subscribe and command.version == 4:
            status = None if state is None else state + pb4.STATUS_UNSUBSCRIBED
            payload = pb4.SubscribeResponse(topic=uri_to_proto(command.topic), status=status).SerializeToString()  # type: ignore[arg-type]  # any int
        elif command.subscribe:
            proto = pb.SubscriptionResponse(topic=uri_to_proto(command.topic))
            proto.status.SetInParent()
            proto.status.state = state or 0  # type: ignore[assignment]
            payload = proto.SerializeToString()
        else:
            payload = pb.UnsubscribeResponse().SerializeToString()
        message = response(now_ms, command.message, payload, None if code is UCode.OK else code, form)
        meaning = Answered(command.topic, command.subscribe, state, code not in UNDELIVERED, False)
        return message, self._sure(command, meaning, message, now_ms)

    def _sure(self, command: Command, meaning: Answered, message: UMessage, now_ms: int) -> Answered:
        """The answer to the last command of its topic, in time: it has to be followed.

        A refusal need not be: the other version of the service may say something else.
        """
        is_last = self.commands[command.topic][-1] is command
        is_in_time = now_ms < created_ms(command.message.id) + TIMEOUT_MS
        is_refused = message.attributes.commstatus not in (None, UCode.OK)
        is_sure = is_last and is_in_time and not (command.is_answered or command.is_twin or is_refused)
        command.is_answered = True
        return meaning._replace(is_sure=is_sure)
