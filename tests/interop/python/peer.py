"""The uProtocol SDK for Python as a uEntity on an in-vehicle MQTT broker, driven by lines of JSON (`tests.interop.peers`).

It runs in an environment of its own, since the SDK wants another version of protobuf. The SDK has no transport with the
mapping of today's specification: this one is on the tests' own MQTT client, which knows nothing of the streamer.
"""

import asyncio
import json
import sys
from typing import Any

from uprotocol.client.usubscription.v3.inmemoryusubcriptionclient import InMemoryUSubscriptionClient
from uprotocol.communication.calloptions import CallOptions
from uprotocol.communication.requesthandler import RequestHandler
from uprotocol.communication.uclient import UClient
from uprotocol.communication.upayload import UPayload
from uprotocol.communication.ustatuserror import UStatusError
from uprotocol.core.utwin.v2.utwin_pb2 import GetLastMessagesRequest, GetLastMessagesResponse, MessageResponse
from uprotocol.transport.ulistener import UListener
from uprotocol.transport.utransport import UTransport
from uprotocol.uri.factory.uri_factory import UriFactory
from uprotocol.uri.serializer.uriserializer import UriSerializer
from uprotocol.v1.uattributes_pb2 import UAttributes
from uprotocol.v1.umessage_pb2 import UMessage
from uprotocol.v1.uri_pb2 import UUri
from uprotocol.v1.ustatus_pb2 import UStatus
from uprotocol.v1.uuid_pb2 import UUID

from tests.independent.message import Plain, Uri, segments
from tests.independent.mqtt import MqttSide

PROTOBUF = 2
OPTIONAL = ("ttl", "permission_level", "commstatus", "token", "traceparent")


def tell(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def from_id(uuid: UUID) -> bytes:
    msb, lsb = int(uuid.msb), int(uuid.lsb)
    return msb.to_bytes(8, "big") + lsb.to_bytes(8, "big")


def to_id(uuid: bytes) -> UUID:
    return UUID(msb=int.from_bytes(uuid[:8], "big"), lsb=int.from_bytes(uuid[8:], "big"))


class MqttTransport(UTransport):  # type: ignore[misc]  # the SDK has no types
    """The SDK's transport layer. An address without authority is that of the uEntity."""

    def __init__(self, side: MqttSide, source: UUri) -> None:
        self._side = side
        self._source = source
        self._listeners: list[tuple[UUri, UUri, UListener]] = []

    async def send(self, message: UMessage) -> UStatus:
        a = message.attributes
        optional = {name: getattr(a, name) for name in OPTIONAL if a.HasField(name)}
        if not optional.get("token"):
            optional.pop("token", None)
        plain = Plain(
            a.type,
            self._plain(a.source),
            self._plain(a.sink) if a.HasField("sink") else None,
            message.payload,
            a.priority,
            reqid=from_id(a.reqid) if a.HasField("reqid") else None,
            payload_format=a.payload_format,
            id=from_id(a.id),
            **optional,
        )
        await self._side.send([plain])
        return UStatus()

    async def register_listener(
        self, source_filter: UUri, listener: UListener, sink_filter: UUri = UriFactory.ANY
    ) -> UStatus:
        self._listeners.append((source_filter, sink_filter, listener))
        topic = self._filter(source_filter)
        await self._side.client.subscribe(
            topic if sink_filter == UriFactory.ANY else f"{topic}/{self._filter(sink_filter)}", 1
        )
        return UStatus()

    async def unregister_listener(
        self, source_filter: UUri, listener: UListener, sink_filter: UUri = UriFactory.ANY
    ) -> UStatus:
        self._listeners.remove((source_filter, sink_filter, listener))
        return UStatus()

    def get_source(self) -> UUri:
        return self._source

    def close(self) -> None:
        pass

    async def receive(self) -> None:
        """Give what arrives to the listeners whose filters match."""
        seen = 0
        while True:
            await self._side.news.wait()
            self._side.news.clear()
            while seen < len(self._side.arrived):
                plain = self._side.arrived[seen]
                seen += 1
                for source, sink, listener in list(self._listeners):
                    if self._matches(source, plain.source) and (sink == UriFactory.ANY or self._matches(sink, plain.sink)):
                        await listener.on_receive(whole(plain))

    def _plain(self, uri: UUri) -> Uri:
        return uri.authority_name or self._source.authority_name, uri.ue_id, uri.ue_version_major, uri.resource_id

    def _filter(self, uri: UUri) -> str:
        return "+/+/+/+/+" if uri == UriFactory.ANY else segments(self._plain(uri))

    def _matches(self, pattern: UUri, uri: Uri | None) -> bool:
        return pattern == UriFactory.ANY or self._plain(pattern) == uri


def proto(uri: Uri) -> UUri:
    return UUri(authority_name=uri[0], ue_id=uri[1], ue_version_major=uri[2], resource_id=uri[3])


def whole(plain: Plain) -> UMessage:
    attributes = UAttributes(
        id=to_id(plain.id),
        type=plain.type,
        source=proto(plain.source),
        sink=None if plain.sink is None else proto(plain.sink),
        priority=plain.priority,
        reqid=None if plain.reqid is None else to_id(plain.reqid),
        payload_format=plain.payload_format,
        **{name: getattr(plain, name) for name in OPTIONAL if getattr(plain, name) is not None},
    )
    return UMessage(attributes=attributes, payload=plain.payload)


class Heard(UListener):  # type: ignore[misc]
    """Tells what comes to it."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def on_receive(self, umsg: UMessage) -> None:
        tell(heard=self._name, message=umsg.SerializeToString().hex())


class Service(RequestHandler):  # type: ignore[misc]
    """Answers with what it was asked, or with a code."""

    def __init__(self, name: str, fail: int | None) -> None:
        self._name = name
        self._fail = fail

    def handle_request(self, message: UMessage) -> UPayload:
        tell(heard=self._name, message=message.SerializeToString().hex())
        if self._fail is not None:
            raise UStatusError.from_code_message(self._fail, "it was told to")
        return UPayload(message.payload, message.attributes.payload_format)


class Peer:
    """What can be called."""

    def __init__(self, transport: MqttTransport, uri: UUri) -> None:
        self._uri = uri
        self._client = UClient(transport)
        self._subscriptions = InMemoryUSubscriptionClient(transport, self._client.rpc_client)
        self._subscribed: dict[str, Heard] = {}

    async def perform(self, call: dict[str, Any]) -> Any:
        payload = UPayload(bytes.fromhex(call["payload"]), call["format"]) if "payload" in call else UPayload.EMPTY
        options = CallOptions(call.get("ttl", 20_000), call.get("priority", 5), call.get("token", ""))
        match call["do"]:
            case "publish":
                return check(await self._client.publish(self._own(call), options, payload))
            case "notify":
                return check(await self._client.notify(self._own(call), address(call["to"]), options, payload))
            case "start_listening":
                listener = Heard(call["name"])
                return check(await self._client.register_notification_listener(address(call["topic"]), listener))
            case "serve":
                service = Service(call["name"], call.get("fail"))
                return check(await self._client.register_request_handler(self._own(call), service))
            case "invoke":
                answer = await self._client.invoke_method(address(call["method"]), payload, options)
                return {"payload": answer.data.hex(), "format": answer.format}
            case "ask_utwin":
                asked = GetLastMessagesRequest()
                asked.topics.uris.extend([address(topic) for topic in call["topics"]])
                question = (UPayload.pack if call["format"] == PROTOBUF else UPayload.pack_to_any)(asked)
                answer = await self._client.invoke_method(address(call["method"]), question, options)
                read = UPayload.unpack(answer, GetLastMessagesResponse)
                return {"format": answer.format, "topics": [last(each) for each in read.responses]}
            case "subscribe":
                listener = self._subscribed[call["topic"]] = Heard(call["name"])
                answer = await self._subscriptions.subscribe(address(call["topic"]), listener)
                return answer.status.state
            case "unsubscribe":
                listener = self._subscribed.pop(call["topic"])
                return check(await self._subscriptions.unsubscribe(address(call["topic"]), listener))
            case unknown:
                raise AssertionError(unknown)

    def _own(self, call: dict[str, Any]) -> UUri:
        uri = UUri()
        uri.CopyFrom(self._uri)
        uri.resource_id = call["resource"]
        return uri


def address(text: str) -> UUri:
    return UriSerializer.deserialize(text)


def last(each: MessageResponse) -> dict[str, Any]:
    told = {"topic": UriSerializer.serialize(each.topic), "code": each.status.code, "text": each.status.message}
    if not each.HasField("message"):
        return told | {"payload": None, "message": None}
    return told | {"payload": each.message.payload.hex(), "message": each.message.SerializeToString().hex()}


def check(status: UStatus) -> None:
    if status.code:
        raise UStatusError(status)


async def main() -> None:
    config = json.loads(sys.argv[1])
    uri = proto((config["authority"], config["entity"], config["version"], 0))
    async with MqttSide(int(config["mqtt5"]["broker"].rpartition(":")[2]), "in-vehicle", []) as side:
        transport = MqttTransport(side, uri)
        peer, tasks = Peer(transport, uri), {asyncio.create_task(transport.receive())}
        tell(call=0, ok=None)

        async def perform(call: dict[str, Any]) -> None:
            try:
                tell(call=call["call"], ok=await peer.perform(call))
            except UStatusError as exc:
                tell(call=call["call"], error=[exc.get_code(), exc.get_message()])

        while line := await asyncio.to_thread(sys.stdin.readline):
            task = asyncio.create_task(perform(json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
