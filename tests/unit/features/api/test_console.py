"""The files of the console, asked over HTTP, and in a wheel."""

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from streamer.config.metrics import MetricsConfig
from streamer.features.api.console import ConsolePages
from streamer.features.api.metrics import Exposition
from streamer.features.api.server import AdminServer
from tests.flow.harness import RouterHarness
from tests.ports import free_port

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "streamer/features/api/console"
FILES = sorted(file.name for file in FOLDER.iterdir())
POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
}


class Switch:
    is_on = True


@pytest.fixture
def switch() -> Switch:
    return Switch()


@pytest.fixture
async def http(switch: Switch) -> AsyncIterator[aiohttp.ClientSession]:
    harness = RouterHarness()
    port = free_port()
    pages = ConsolePages(lambda: switch.is_on).routes()
    server = AdminServer(harness.router, Exposition(harness.router), MetricsConfig(listen=f"127.0.0.1:{port}"), pages=pages)
    await server.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    await server.stop()


@pytest.mark.parametrize("name", ["", *FILES])
async def test_every_file_is_served_with_headers_that_let_nothing_else_in(name: str, http: aiohttp.ClientSession) -> None:
    async with http.get(f"/console/{name}") as answer:
        assert answer.status == 200
        assert await answer.read() == (FOLDER / (name or "index.html")).read_bytes()
        assert set(answer.headers["Content-Security-Policy"].split("; ")) == POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        kinds = {"": "text/html", ".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
        assert answer.headers["Content-Type"] == f"{kinds[Path(name).suffix]}; charset=utf-8"


@pytest.mark.parametrize("path", ["/", "/console"])
async def test_the_root_leads_to_the_console(path: str, http: aiohttp.ClientSession) -> None:
    async with http.get(path, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/console/")


@pytest.mark.parametrize(
    "path", ["/console/server.py", "/console/..%2fserver.py", "/console/%2e%2e/server.py", "/console/a/b"]
)
async def test_nothing_but_its_files_is_served(path: str, http: aiohttp.ClientSession) -> None:
    async with http.get(path) as answer:
        assert answer.status == 404


@pytest.mark.parametrize("path", ["/", "/console", "/console/", "/console/console.js"])
async def test_where_it_is_off_the_answer_says_which_key_turns_it_on(
    path: str, switch: Switch, http: aiohttp.ClientSession
) -> None:
    switch.is_on = False
    async with http.get(path, allow_redirects=False) as answer:
        assert answer.status == 404
        assert "metrics.console" in (await answer.json())["error"]


def test_the_page_needs_nothing_from_elsewhere_and_has_no_script_or_style_of_its_own() -> None:
    page = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == [""]
    assert "<style" not in page
    assert not re.search(r"\son\w+=|\sstyle=", page)
    for file in FOLDER.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|url\(", text), file.name


def test_the_script_makes_no_markup_and_no_code_from_text() -> None:
    dangerous = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc|javascript:|DOMParser"
    for file in FOLDER.glob("*.js"):
        assert not re.search(dangerous, file.read_text()), file.name


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".js", ".css"))])
def test_its_files_keep_to_the_bounds_of_all_files(name: str) -> None:
    lines = (FOLDER / name).read_text().splitlines()
    assert len(lines) <= 400
    assert [number for number, line in enumerate(lines, 1) if len(line) > 125] == []


def test_a_wheel_has_its_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    skip = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "streamer", source / "streamer", ignore=skip)
    for name in ("pyproject.toml", "setup.py", "build_backend.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
    ]
    subprocess.run([*command, str(source)], check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {Path(name).name for name in names if name.startswith("streamer/features/api/console/")} == set(FILES)
    assert "streamer/features/api/openapi.yaml" in names
