"""The simulated vehicle: a Zenoh session without our transport. Drives, opens doors, and serves RPCs."""

import asyncio
import json
import math
from typing import Any

import zenoh

from demo import scenario
from demo.ledger import NO_ANSWER, Ledger
from demo.processes import DemoError
from demo.timing import now_ms, now_s, ticks
from streamer.transports.errors import MalformedPacketError
from streamer.transports.zenoh.wire import PRIORITIES, SampleDecoder, encode_attachment, key_filter, key_for
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import (
    Attributes,
    Options,
    UMessage,
    UMessageType,
    UPayloadFormat,
    UPriority,
    notification,
    publish,
    request,
    response,
)
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import everything_at

SPEED_S = 0.02
DOOR_S = 0.7
FORBIDDEN_S = 1.9
_HEADER_BYTES = 8192

_JSON = UPayloadFormat.JSON


class Vehicle:
    """All uEntities at authority ``veh1``. Entering the context connects; messages arrive on Zenoh's threads."""

    def __init__(self, endpoints: list[str], ledger: Ledger) -> None:
        self._endpoints = endpoints
        self._ledger = ledger
        self._decoder = SampleDecoder(scenario.VEHICLE, _HEADER_BYTES, _HEADER_BYTES, Flows())
        self._loop = asyncio.get_running_loop()
        self._session: zenoh.Session
        self._publishers: list[zenoh.Publisher] = []
        self._puts: asyncio.Queue[UMessage] = asyncio.Queue(1000)
        self._temperature_c = 21.0

    async def __aenter__(self) -> "Vehicle":
        opening = asyncio.create_task(asyncio.to_thread(self._open), name="vehicle-open")
        try:
            await asyncio.shield(opening)
        except zenoh.ZError as exc:
            raise DemoError(f"the simulated vehicle cannot open Zenoh at {', '.join(self._endpoints)}: {exc}") from exc
        except asyncio.CancelledError:  # an open session would keep the process from ending
            await asyncio.wait([opening])
            if opening.exception() is None:
                await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._session.close)

    def _open(self) -> None:
        config = zenoh.Config()
        for key, value in (
            ("mode", "peer"),
            ("connect/endpoints", self._endpoints),
            ("connect/retry", {"period_init_ms": 100, "period_max_ms": 500, "period_increase_factor": 2}),
            ("listen/endpoints", []),
            ("scouting/multicast/enabled", False),
        ):
            config.insert_json5(key, json.dumps(value))
        self._session = zenoh.open(config)
        everyone, us = everything_at("*"), everything_at(scenario.VEHICLE)
        self._session.declare_subscriber(key_filter(everyone, us, scenario.VEHICLE), self._on_sample)
        for source, sink in (
            (scenario.SPEED, None),
            (scenario.DOOR, scenario.CLOUD_APP),
            (scenario.DRIVER_APP, scenario.SLEEPERS_CLIMATE),
        ):
            self._publishers.append(self._session.declare_publisher(key_filter(source, sink, scenario.VEHICLE)))

    @property
    def is_heard(self) -> bool:
        """Whether each daemon is linked, and one of them has subscribed to everything that the vehicle publishes."""
        statuses: list[Any] = [publisher.matching_status for publisher in self._publishers]  # the stubs say bool
        return len(self._session.info.peers_zid()) >= len(self._endpoints) and all(status.matching for status in statuses)

    def _on_sample(self, sample: zenoh.Sample) -> None:
        """Pass a sample on to the event loop. Called on a thread of Zenoh, so it must not block."""
        try:
            self._loop.call_soon_threadsafe(self._take, sample)
        except RuntimeError:  # the loop is closed: the demo is over
            return

    def _take(self, sample: zenoh.Sample) -> None:
        try:
            message = self._decoder.message_of(sample)
        except MalformedPacketError:
            self._ledger.unknown += 1
            return
        attributes = message.attributes
        if attributes.type is UMessageType.RESPONSE:
            self._take_response(message)
            return
        warm_up = message.id in self._ledger.warm_up
        is_news = not self._ledger.is_settled(message.id)
        self._ledger.arrive(message.id, now_s())
        if attributes.type is UMessageType.REQUEST and attributes.sink == scenario.CLIMATE and is_news:
            self._serve_climate(message, warm_up)

    def _take_response(self, message: UMessage) -> None:
        attributes = message.attributes
        if attributes.reqid is not None:
            self._ledger.answer(attributes.reqid, UCode(attributes.commstatus or 0).name)

    def _serve_climate(self, asked: UMessage, warm_up: bool) -> None:
        if asked.payload:
            self._temperature_c = float(json.loads(asked.payload)["celsius"])
        answer = response(now_ms(), asked, _json(celsius=self._temperature_c), payload_format=_JSON)
        flow = self._ledger.warm_up if warm_up else self._ledger.flows[scenario.ANSWER_FLOW]
        flow.send(answer.id, now_s())
        self._puts.put_nowait(answer)

    async def run(self, stop: asyncio.Event) -> None:
        """Send the vehicle's publications and Requests until ``stop``."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._drive(stop), name="vehicle-speed")
            tasks.create_task(self._doors(stop), name="vehicle-doors")
            tasks.create_task(self._call_neighbour(stop), name="vehicle-call")

    async def answer(self) -> None:
        """Send the answers of the services until cancelled."""
        while True:
            await self._put(await self._puts.get())

    async def _drive(self, stop: asyncio.Event) -> None:
        options = Options(priority=UPriority.CS1, payload_format=_JSON)
        async for number in ticks(SPEED_S, 0.0, stop):
            speed_kmh = round(60 + 40 * math.sin(number / 250), 1)
            await self._send(scenario.SPEED_FLOW, publish(now_ms(), scenario.SPEED, _json(kmh=speed_kmh), options))

    async def _doors(self, stop: asyncio.Event) -> None:
        options = Options(priority=UPriority.CS3, payload_format=_JSON)
        async for number in ticks(DOOR_S, 0.1, stop):
            event = _json(door="front left", open=number % 2 == 0)
            await self._send(scenario.DOOR_FLOW, notification(now_ms(), scenario.DOOR, scenario.CLOUD_APP, event, options))

    async def _call_neighbour(self, stop: asyncio.Event) -> None:
        """Call another vehicle, for which the configuration has no route."""
        async for _ in ticks(FORBIDDEN_S, 0.3, stop):
            message = request(now_ms(), scenario.DRIVER_APP, scenario.SLEEPERS_CLIMATE, scenario.TTL_MS)
            self._ledger.calls[scenario.FORBIDDEN_FLOW].ask(message.id)
            self._loop.call_later(scenario.TTL_MS / 1000 + scenario.PATIENCE_S, self._ledger.answer, message.id, NO_ANSWER)
            await self._send(scenario.FORBIDDEN_FLOW, message)

    async def _send(self, flow: str, message: UMessage) -> None:
        self._ledger.flows[flow].send(message.id, now_s())
        await self._put(message)

    async def _put(self, message: UMessage) -> None:
        """Put a message on a thread: a put can block while the receiver does not read."""
        await asyncio.to_thread(self._put_blocking, message)

    def _put_blocking(self, message: UMessage) -> None:
        attributes: Attributes = message.attributes
        put: Any = self._session.put
        put(
            key_for(attributes, scenario.VEHICLE),
            message.payload or b"",
            attachment=encode_attachment(message),
            priority=getattr(zenoh.Priority, PRIORITIES[attributes.priority_class]),
            congestion_control=zenoh.CongestionControl.BLOCK,
        )


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()
