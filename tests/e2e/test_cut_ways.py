"""Through a proxy, through wss, and both, while the connection is cut and reset: nothing is lost, in either direction.

With ``LONG=1`` it is 100 000 messages each.
"""

import asyncio
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from tests.brokers import Mosquitto, TlsFiles
from tests.certificates import write_certificates
from tests.fault.proxy import Proxy
from tests.http_proxy import HttpProxyServer
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.lengths import at_length
from tests.ports import HOST
from tests.process import StreamerProcess
from tests.waiting import until
from tests.websocket_server import WebSocketServer

COUNT = at_length(100_000, 4_000)
CUTS = 10
FLOWS = 20

pytestmark = [pytest.mark.mosquitto, pytest.mark.timeout(1800)]


def notifications(here: str, there: str) -> list[Plain]:
    payload = 64 * b"x"
    return [
        Plain(4, (here, 0x20000 + number % FLOWS, 1, 0x8001), (there, 3, 1, 0), payload + str(number).encode())
        for number in range(COUNT // 2)
    ]


def configuration(near: Mosquitto, url: str, **options: Any) -> dict[str, Any]:
    quick = {"reconnect": {"initial_ms": 50, "max_ms": 200}}
    return {
        "authority": "gw",
        "endpoints": {
            "near": {"transport": "mqtt5", "authorities": ["alpha"], "options": {"broker": near.url}},
            "far": {"transport": "mqtt5", "authorities": ["beta"], "options": {"broker": url, **quick, **options}},
        },
        "routes": [{"from": "near", "to": "far"}, {"from": "far", "to": "near"}],
    }


def first_arrivals(arrived: list[Plain]) -> list[bytes]:
    """Ids without the copies that a lost connection causes."""
    return list(dict.fromkeys(message.id for message in arrived))


def by_flow(ids: list[bytes], sent: list[Plain]) -> dict[int, list[bytes]]:
    flow_of = {message.id: message.source[1] for message in sent}
    found: dict[int, list[bytes]] = {}
    for each in ids:
        found.setdefault(flow_of[each], []).append(each)
    return found


@pytest.mark.parametrize("way", ["proxy", "wss", "wss through a proxy"])
async def test_cuts_lose_nothing_and_keep_the_order_of_each_flow(way: str, tmp_path: Path) -> None:
    write_certificates(tmp_path)
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key", require_certificate=False)
    options: dict[str, Any] = {"tls": {"ca_file": str(tmp_path / "ca.pem")}}
    async with AsyncExitStack() as stack:
        near = stack.enter_context(Mosquitto())
        far = stack.enter_context(Mosquitto(tls=files if way == "proxy" else None))
        url = far.url
        if "wss" in way:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
            url = (await stack.enter_async_context(WebSocketServer(far.port, context))).url
        if "proxy" in way:
            inner = await stack.enter_async_context(HttpProxyServer())
            cuts = await stack.enter_async_context(Proxy(inner.port))
            options["proxy"] = f"http://{HOST}:{cuts.port}"
        else:
            cuts = await stack.enter_async_context(Proxy(int(url.rpartition(":")[2].partition("/")[0])))
            url = f"wss://{HOST}:{cuts.port}/mqtt"
        daemon = await stack.enter_async_context(StreamerProcess(tmp_path, configuration(near, url, **options)))
        tls = aiomqtt.TLSParameters(ca_certs=str(tmp_path / "ca.pem")) if way == "proxy" else None
        alpha = await stack.enter_async_context(MqttSide(near.port, "off-vehicle", ["+/alpha"]))
        beta = await stack.enter_async_context(MqttSide(far.port, "off-vehicle", ["+/beta"], tls=tls))
        there, back = notifications("alpha", "beta"), notifications("beta", "alpha")
        sending = asyncio.gather(alpha.send(there), beta.send(back))

        def arrived() -> int:
            return len(alpha.arrived) + len(beta.arrived)

        for number in range(CUTS):
            wanted = arrived() + (COUNT - arrived()) // (2 * CUTS)
            await until(lambda: arrived() >= wanted and cuts.links > number, "some messages", 600)  # noqa: B023
            if number % 2:
                await cuts.cut()
            else:
                cuts.reset()
        await sending
        ids = {message.id for message in there + back}
        await until(lambda: arrived() >= COUNT and {m.id for m in alpha.arrived + beta.arrived} == ids, "all messages", 600)
        await daemon.until_total(COUNT, "ustreamer_outcomes_total", outcome="delivered")
        daemon.check_books()
        copies = daemon.total("ustreamer_outcomes_total", outcome="duplicate")
        assert daemon.total("ustreamer_outcomes_total") - copies == COUNT
        assert cuts.links >= CUTS
    for sent, side in ((there, beta), (back, alpha)):
        assert by_flow(first_arrivals(side.arrived), sent) == by_flow([message.id for message in sent], sent)
