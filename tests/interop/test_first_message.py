"""The message of docs/first-message.md from mqtt.js and the SDKs, with the code that stands on the page."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.gateway import Gateway, arrives_in_the_car, gateway, of_page, run_to_its_end
from tests.interop.build import RUST_EXAMPLE, rust_example
from tests.interop.programs import BUILD, need

pytestmark = pytest.mark.interop


@pytest.fixture
async def running() -> AsyncIterator[Gateway]:
    async with gateway() as found:
        yield found


async def test_mqtt_js_sends_it(running: Gateway, tmp_path: Path) -> None:
    modules = need("js", BUILD / "js" / "node_modules")
    script = tmp_path / "first.cjs"
    script.write_text(of_page("### mqtt.js", "javascript", running.broker))
    await run_to_its_end("node", script, environ=os.environ | {"NODE_PATH": str(modules)})
    await arrives_in_the_car(running)


async def test_the_sdk_for_python_sends_it(running: Gateway, tmp_path: Path) -> None:
    python = need("python", BUILD / "python" / "bin" / "python")
    script = tmp_path / "first.py"
    script.write_text(of_page("### The SDK for Python", "python", running.broker))
    await run_to_its_end(python, script)
    await arrives_in_the_car(running)


async def test_the_sdk_for_rust_sends_it(running: Gateway) -> None:
    program = need("rust", BUILD / "rust" / "debug" / "first_message")
    assert RUST_EXAMPLE.read_text() == rust_example(), "the page has changed since `make interop` built the program"
    await run_to_its_end(program, environ=os.environ | {"BROKER": running.broker.url})
    await arrives_in_the_car(running)
