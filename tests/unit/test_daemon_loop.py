"""While a daemon runs, no file that its configuration names is touched on the event loop: its file system may hang."""

import asyncio
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from streamer.logs.output import open_audit_log, set_up
from tests.certificates import write_certificates
from tests.ports import free_port
from tests.tokens import AUDIENCE, ISSUER, write_keys
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.api.tls_port import client, post, tls
from tests.waiting import until

_watched: dict[str, list[str]] = {}
"""Folders whose files are watched; the files below that were touched, on which thread."""


def _note(path: object) -> None:
    if isinstance(path, str | os.PathLike):
        for folder, found in _watched.items():
            if os.fspath(path).startswith(folder):
                found.append(f"{threading.current_thread().name} {os.path.basename(os.fspath(path))}")


@pytest.fixture(scope="module", autouse=True)
def _open_is_noticed() -> None:
    """Python tells of every file that it opens itself. OpenSSL and Zenoh open only what was opened so just before."""
    sys.addaudithook(lambda event, arguments: _note(arguments[0]) if _watched and event == "open" else None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its files are watched."""
    path = tmp_path / "watched"
    path.mkdir()
    for name in ("stat", "lstat"):
        original: Callable[..., Any] = getattr(os, name)

        def noticed(path: Any, *arguments: Any, _original: Callable[..., Any] = original, **named: Any) -> Any:
            _note(path)
            return _original(path, *arguments, **named)

        monkeypatch.setattr(os, name, noticed)
    yield path
    _watched.clear()


def sections(folder: Path) -> dict[str, Any]:
    """Every section that names a file, with that file in the folder."""
    write_certificates(folder)
    (folder / "password").write_text("secret")
    (folder / "token").write_text("not-for-everybody")
    (folder / "headers").write_text("Authorization: Bearer x\n")
    (folder / "zenoh.json5").write_text("{}")
    (folder / "key").write_bytes(b"k" * 32)
    write_keys(folder / "jwks.json")
    mqtt = {
        "broker": f"mqtts://127.0.0.1:{free_port()}",
        "username": "u",
        "password_file": str(folder / "password"),
        "tls": {"ca_file": str(folder / "ca.pem")},
        "reconnect": {"initial_ms": 500, "max_ms": 500},
    }
    zenoh = {
        "config_file": str(folder / "zenoh.json5"),
        "receipts": {"key_file": str(folder / "key"), "streamers": ["other"]},
    }
    bus = {"bus": f"{folder}-v"}
    return {
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": bus},
            "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": mqtt},
            "device": {"transport": "zenoh", "authorities": ["veh2"], "options": {"listen": [], **zenoh}},
        },
        "permissions": {
            "endpoints": {"vehicle": {"rules": [{"allow": {}}]}},
            "methods": [{"method": "//veh1/B/1/7", "tap": True}],
            "tap": {
                "verifier": "jwt",
                "options": {"jwks_file": str(folder / "jwks.json"), "issuer": ISSUER, "audience": AUDIENCE},
            },
        },
        "control": {"http_token_file": str(folder / "token")},
        "otel": {"endpoint": f"http://127.0.0.1:{free_port()}", "headers_file": str(folder / "headers"), "interval_s": 0.1},
        "log": {"audit": str(folder / "audit.log")},
    }


async def changed(served: DaemonHarness, context: Any) -> int:
    """Ask for a reload with the token; the status."""
    url = f"https://127.0.0.1:{served.port}/api/v1/reload"
    headers = {"Authorization": "Bearer not-for-everybody"}
    async with aiohttp.ClientSession() as session, session.post(url, json={}, headers=headers, ssl=context) as answer:
        return answer.status


@pytest.mark.needs("judge", "pause")
async def test_no_file_that_the_configuration_names_is_touched_on_the_event_loop(tmp_path: Path, folder: Path) -> None:
    named = sections(folder)
    context = client(folder)
    set_up(audit=open_audit_log(folder / "audit.log"))
    async with running(tmp_path, tls=tls(folder), **named) as served:
        found = _watched[str(folder)] = []

        def seen() -> set[str]:
            return {each.split()[1] for each in found}

        def renew() -> None:
            """Not on the event loop's thread, for that is what is watched."""
            write_keys(folder / "other.json")
            os.replace(folder / "other.json", folder / "jwks.json")
            for name in ("server.pem", "server.key"):
                shutil.copy(folder / name, folder / "fresh")
                os.replace(folder / "fresh", folder / name)
            (folder / "password").write_text("another")
            (folder / "key").write_bytes(b"K" * 32)
            served.raw["log"] = {"audit": str(folder / "another.log")}
            served.write()

        assert await post(served, context, {}) == 401  # what a stranger can cause
        await until(lambda: {"token", "jwks.json", "headers", "password", "ca.pem", "audit.log"} <= seen())
        await asyncio.to_thread(renew)
        assert await changed(served, context) == 200
        await until(lambda: "another.log" in seen())
        everything = {"jwks.json", "token", "server.pem", "server.key", "zenoh.json5", "key", "password", "ca.pem"}
        assert everything - seen() == set()
        touched = [each for each in found if each.startswith(f"{threading.current_thread().name} ")]
        _watched.clear()
    assert touched == []
