"""A bridge as people write it, on aiomqtt and eclipse-zenoh: topic and payload, QoS 1, both directions.

It knows nothing of uProtocol: the attributes of a message stay behind, nothing is kept, and a message that is being carried
when it ends is lost. ``python -m tests.bench.bridge up|down --port P --endpoint E``; it carries both ways in any case.
"""

import argparse
import asyncio
import json

import aiomqtt
import zenoh

MQTT_TOPICS = "+/veh1"  # what goes into Zenoh
ZENOH_KEYS = "up/veh1/**"  # what goes into MQTT


def open_session(endpoint: str) -> zenoh.Session:
    config = zenoh.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("connect/endpoints", json.dumps([endpoint]))
    return zenoh.open(config)


async def into_zenoh(client: aiomqtt.Client, session: zenoh.Session) -> None:
    await client.subscribe(MQTT_TOPICS, qos=1)
    async for message in client.messages:
        session.put(f"up/{message.topic}", message.payload)


async def into_mqtt(client: aiomqtt.Client, session: zenoh.Session) -> None:
    loop = asyncio.get_running_loop()
    samples: asyncio.Queue[zenoh.Sample] = asyncio.Queue()
    subscriber = session.declare_subscriber(ZENOH_KEYS, lambda sample: loop.call_soon_threadsafe(samples.put_nowait, sample))
    try:
        while True:
            sample = await samples.get()
            authority = str(sample.key_expr).split("/")[1]
            await client.publish(f"{authority}/cloud", sample.payload.to_bytes(), qos=1)
    finally:
        subscriber.undeclare()


async def run(port: int, endpoint: str) -> None:
    with open_session(endpoint) as session:
        async with aiomqtt.Client("127.0.0.1", port) as client, asyncio.TaskGroup() as tasks:
            tasks.create_task(into_zenoh(client, session))
            tasks.create_task(into_mqtt(client, session))
            print("ready", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("direction", choices=["up", "down"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--endpoint", required=True)
    a = parser.parse_args()
    asyncio.run(run(a.port, a.endpoint))
