"""The configuration and the clients of an HTTP port with TLS."""

import ssl
from pathlib import Path

import aiohttp

from tests.unit.features.api.audit import PAUSE
from tests.unit.features.api.daemon import DaemonHarness


def tls(certificates: Path, **changes: str) -> dict[str, str]:
    files = {"cert_file": "server.pem", "key_file": "server.key", "client_ca_file": "ca.pem"} | changes
    return {key: str(certificates / name) for key, name in files.items() if name}


def client(certificates: Path, who: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if who is not None:
        context.load_cert_chain(certificates / f"{who}.pem", certificates / f"{who}.key")
    return context


async def post(served: DaemonHarness, context: ssl.SSLContext, headers: dict[str, str]) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"https://127.0.0.1:{served.port}/api/v1/pause", json=PAUSE, headers=headers, ssl=context) as answer,
    ):
        return answer.status
