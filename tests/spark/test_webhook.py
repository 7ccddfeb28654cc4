"""Verdicts are posted to a URL that nobody is told, within bounds, whatever answers there."""

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import webhook
from spark_jobs.webhook import WebhookError, post, url

SECRET = "s3cr3t-path"
CONTENT = {"format": 1, "level": "good", "text": "überall"}


class Hook(http.server.ThreadingHTTPServer):
    """Answers with the given statuses, one after the other, and keeps what it got. Status 0: it never answers."""

    daemon_threads = True

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.statuses, self.got, self.ended = statuses, list[tuple[str, str, Any]](), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/{SECRET}"


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, self.headers["Content-Type"], body))
        status = self.server.statuses.pop(0)
        if not status:
            self.server.ended.wait()
            return
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"/elsewhere/{SECRET}")
        self.end_headers()

    def do_GET(self) -> None:
        raise AssertionError("a redirect was followed")

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook([200]) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()


def posted(hook: Hook, *statuses: int) -> tuple[str | None, list[float]]:
    """Why it failed, and how long was paused."""
    hook.statuses = list(statuses)
    paused: list[float] = []
    why = None
    try:
        post(hook.url, CONTENT, paused.append)
    except WebhookError as error:
        why = str(error)
    assert SECRET not in (why or "")
    return why, paused


def test_a_verdict_is_posted_as_json(hook: Hook) -> None:
    assert posted(hook, 204) == (None, [])
    assert hook.got == [(f"/{SECRET}", "application/json", CONTENT)]


def test_what_may_be_over_soon_is_tried_again(hook: Hook) -> None:
    assert posted(hook, 503, 429, 200) == (None, [2.0, 2.0])
    assert posted(hook, 500, 502, 503) == ("it answers with status 503", [2.0, 2.0])
    assert len(hook.got) == 6


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_a_refusal_is_final(hook: Hook, status: int) -> None:
    assert posted(hook, status) == (f"it answers with status {status}", [])


def test_a_redirect_is_not_followed(hook: Hook) -> None:
    assert posted(hook, 302, 302, 302) == ("it answers with status 302", [2.0, 2.0])


def test_who_never_answers_is_given_up(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_LIMIT_S", 0.05)
    assert posted(hook, 0, 0, 0) == ("no answer within 0 s", [2.0, 2.0])


def test_a_time_limit_has_one_text_whichever_is_noticed_first(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_LIMIT_S", 0.05)
    hook.statuses = [0]
    assert webhook._answer(hook.url, b"{}") == "no answer within 0 s"


@pytest.mark.parametrize(
    ("to", "says"),
    [(f"http://127.0.0.1:1/{SECRET}", "Connection refused"), (f"https://127.0.0.1:1/{SECRET}", "Connection refused")],
)
def test_why_it_failed_is_told_without_the_url(to: str, says: str) -> None:
    with pytest.raises(WebhookError) as raised:
        post(to, CONTENT, lambda _: None)
    assert str(raised.value) == says


def test_what_is_no_http_is_told_without_the_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(3):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(f"{SECRET} is what you asked for\r\n\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WebhookError) as raised:
            post(f"http://127.0.0.1:{server.getsockname()[1]}/{SECRET}", CONTENT, lambda _: None)
        thread.join()
    assert SECRET not in str(raised.value)


def test_the_url_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("https://a.example/x?y=z\n")
    assert url(str(file), {webhook.VARIABLE: "https://b.example"}) == "https://a.example/x?y=z"
    assert url(None, {webhook.VARIABLE: "https://b.example"}) == "https://b.example"
    assert url(None, {}) is None
    assert url(None, {webhook.VARIABLE: ""}) is None


@pytest.mark.parametrize(
    "text", ["", SECRET, f"ftp://a/{SECRET}", "https://", f"https://a:x/{SECRET}", f"https://a b/{SECRET}"]
)
def test_what_is_no_url_is_refused_and_not_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "url"
    file.write_text(text)
    with pytest.raises(WebhookError) as raised:
        url(str(file), {})
    assert str(raised.value) == f"{file}: expected one URL that begins with https:// or http://"
    with pytest.raises(WebhookError, match="cannot be read: No such file or directory"):
        url(f"{file}.not", {})
