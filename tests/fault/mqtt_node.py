"""A uEntity on an MQTT broker, under load: paho, which shares no code with the daemon."""

import os
import threading
import time
from collections.abc import Iterable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.fault.load import PUBLISH, TOPIC_SIDES, Book, Pump
from tests.independent.mqtt import from_mqtt, mqtt_properties, mqtt_topic
from tests.ports import HOST

NO_SUBSCRIBER = 0x10
MOST_UNCONFIRMED = 1000


class MqttNode:
    """A uEntity on a broker: one client that sends and receives, in a thread of its own, and comes back by itself."""

    def __init__(self, side: str, port: int, structure: str, topics: Iterable[str], book: Book) -> None:
        self.side = side
        self.pump = Pump()
        self.is_ready = False
        """Connected, and what it wants to hear is subscribed to."""
        self.unconfirmed: dict[int, bytes] = {}
        self.error: Exception | None = None
        self._port = port
        self._structure = structure
        self._topics = list(topics)
        self._book = book
        self._ends = False
        self._client = self._new_client()
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{side}", daemon=True)

    def _new_client(self) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, f"app-{os.urandom(6).hex()}", protocol=paho.MQTTv5)
        client.max_inflight_messages_set(MOST_UNCONFIRMED)
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_disconnect = self._disconnected
        client.on_publish = self._confirmed
        client.on_message = self._arrived
        return client

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ends = True
        self._thread.join(30)

    # The following run in the thread of the node.

    def _run(self) -> None:
        try:
            self._work()
        except Exception as exc:
            self.error = exc
            raise

    def _work(self) -> None:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        properties.ReceiveMaximum = 1000
        self._client.connect_async(HOST, self._port, clean_start=False, properties=properties)
        while not self._ends:
            try:
                self._client.reconnect()
            except OSError:
                time.sleep(0.05)
                continue
            while not self._ends and self._client.loop(0.005) == paho.MQTT_ERR_SUCCESS:
                self._send_what_is_due()
            self.is_ready = False
        self._client.disconnect()
        self._client.loop(0.01)

    def _send_what_is_due(self) -> None:
        while self.is_ready and len(self.unconfirmed) < MOST_UNCONFIRMED and (message := self.pump.next()) is not None:
            if self._structure == "off-vehicle" and message.type == PUBLISH:
                message = message.addressed_to(TOPIC_SIDES[message.source[3]])
            topic, properties = mqtt_topic(message, self._structure), mqtt_properties(message)
            info = self._client.publish(topic, message.payload, qos=1, properties=properties)
            self.unconfirmed[info.mid] = message.id

    def _connected(self, client: paho.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        assert not reason.is_failure, reason
        client.subscribe([(topic, SubscribeOptions(qos=1)) for topic in self._topics])

    def _subscribed(self, *_: Any) -> None:
        self.is_ready = True

    def _disconnected(self, *_: Any) -> None:
        self.is_ready = False

    def _confirmed(self, _client: paho.Client, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        message_id = self.unconfirmed.pop(mid)
        if reason.value < 0x80 and reason.value != NO_SUBSCRIBER:
            self._book.ledger.acknowledged(message_id)

    def _arrived(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self._book.take(self.side, from_mqtt(bytes(message.payload), message.properties))
