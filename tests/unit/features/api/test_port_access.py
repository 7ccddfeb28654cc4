"""Who may do what at the port of a whole daemon: token, pages of other origins."""

import logging
import os
import stat
from collections.abc import AsyncIterator, Callable
from glob import glob
from pathlib import Path

import pytest

from streamer.config.token import made_token_file, make_token, read_token, token_file
from streamer.logs import audit
from tests.flow.harness import SPEED, configuration
from tests.ports import free_port
from tests.unit.features.api.audit import PAUSE, audited
from tests.unit.features.api.daemon import DaemonHarness, running

KNOWN = "known to whoever has put it there"


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DaemonHarness]:
    monkeypatch.setattr(audit, "_denials", audit.denials())
    async with running(tmp_path) as harness:
        yield harness


# the token


@pytest.mark.needs("pause")
async def test_the_token_is_made_once_for_its_owner_only_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path) as first:
        token = first.token_file.read_text()
        assert (len(bytes.fromhex(token)), stat.S_IMODE(first.token_file.stat().st_mode)) == (32, 0o600)
        assert (await first.ask("/api/v1/pause", PAUSE)).json == {"changed": True}
    async with running(tmp_path) as second:
        assert second.token_file.read_text() == token
    assert token.strip() not in caplog.text
    assert [record.getMessage().partition(" ")[0] for record in caplog.records].count("http_token_made") == 1
    assert not glob(f"{first.token_file}.*")


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_umask_makes_no_difference(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert make_token(tmp_path / "token")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_link_is_neither_followed_nor_replaced(tmp_path: Path) -> None:
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not a file"):
        make_token(tmp_path / "token")
    assert not (tmp_path / "elsewhere").exists()


def _a_link(token: Path) -> None:
    _open_to_others(token.with_name("elsewhere"))
    token.symlink_to(token.with_name("elsewhere"))


def _open_to_others(token: Path) -> None:
    token.write_text(KNOWN)
    token.chmod(0o644)


@pytest.mark.needs("pause")
@pytest.mark.parametrize("plant", [_a_link, _open_to_others])
async def test_what_somebody_else_has_put_there_is_no_token_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, plant: Callable[[Path], None]
) -> None:
    plant(tmp_path / "journal-token")
    async with running(tmp_path) as served:
        headers = {"Authorization": f"Bearer {KNOWN}"}
        assert (await served.ask("/api/v1/pause", PAUSE, headers=headers)).status in (401, 403)
    assert "http_token_not_made" in caplog.text
    assert KNOWN not in caplog.text


def test_only_a_file_is_read_by_the_daemon_and_not_more_than_a_token_takes(tmp_path: Path) -> None:
    """A pipe that nobody writes to would hold it up for ever, a device would fill its memory."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        read_token(pipe, may_wait=False)
    with pytest.raises(ValueError, match="at most 4096"):
        read_token(Path("/dev/zero"))


def test_the_token_is_where_the_configuration_says_or_beside_the_journal(tmp_path: Path) -> None:
    journal = {"path": str(tmp_path / "j.db")}
    named = configuration(journal=journal, control={"http_token_file": "/run/token"})
    assert (token_file(named), made_token_file(named)) == (Path("/run/token"), None)
    made = configuration(journal=journal)
    assert token_file(made) == made_token_file(made) == tmp_path / "j-token"
    assert made_token_file(configuration(journal=journal, metrics=None)) is None
    assert token_file(configuration()) is None


@pytest.mark.needs("pause")
async def test_without_any_way_in_every_change_is_refused_and_told_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "_denials", audit.denials())
    async with running(tmp_path, journal=None) as served:
        asked = await served.ask("/api/v1/pause", PAUSE, headers={})
        assert asked.status == 403
        assert "expected control.http_token_file, a journal" in asked.json["error"]
        assert (await served.ask("/api/v1/paused", headers={})).status == 200
    assert [line.partition(" reason=")[0] for line in audited(caplog)] == ["denied who=http where=127.0.0.1"]


# pages in a browser


@pytest.mark.needs("pause")
@pytest.mark.parametrize(
    ("headers", "reads", "changes"),
    [
        ({}, 200, 200),
        ({"Origin": "http://HOST"}, 200, 200),
        ({"Origin": "HTTP://HOST"}, 200, 200),
        ({"Origin": "https://HOST"}, 403, 403),
        ({"Origin": "http://127.0.0.1"}, 403, 403),
        ({"Origin": "http://evil.example"}, 403, 403),
        ({"Origin": "null"}, 403, 403),
        ({"Origin": ""}, 403, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200, 200),
        ({"Sec-Fetch-Site": "none"}, 200, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403, 403),
    ],
)
async def test_pages_of_other_origins_get_nothing(
    served: DaemonHarness, headers: dict[str, str], reads: int, changes: int
) -> None:
    host = f"127.0.0.1:{served.port}"
    sent = served.bearer | {name: value.replace("HOST", host) for name, value in headers.items()}
    asked = await served.ask("/api/v1/routes", headers=sent)
    assert asked.status == reads
    assert not [name for name in asked.headers if name.lower().startswith("access-control")]
    assert (await served.ask("/metrics", headers=sent)).status == reads
    assert (await served.ask("/api/v1/pause", PAUSE, headers=sent)).status == changes
    assert (await served.ask("/api/v1/dead-letters/1", headers=sent)).status == (404 if changes == 200 else 403)
    assert len(served.daemon.router.pause_rules.rules) == (changes == 200)


PROXY = {"Host": "gw.example", "Origin": "https://gw.example", "Sec-Fetch-Site": "same-origin"}


@pytest.mark.needs("pause")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "127.0.0.1:9464"}, 200),  # a proxy that does not pass it on
        ({"Origin": "https://GW.example:443"}, 200),
        ({"Origin": "https://[2001:db8::1]:8443"}, 200),
        ({"Origin": "http://gw.example:444"}, 403),
        ({"Origin": "https://gw.example:444"}, 403),
        ({"Origin": "https://gw.example.evil.example"}, 403),
        ({"Origin": "https://other.example", "Host": "other.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example//gw.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_pages_behind_a_proxy_with_tls_of_its_own_may_change_things_if_their_origin_is_known(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    metrics = {"listen": listen, "origins": ["https://gw.example", "https://[2001:DB8::1]:8443"]}
    async with running(tmp_path, metrics=metrics) as served:
        served.url = f"http://{listen}"
        assert (await served.ask("/api/v1/pause", PAUSE, headers=served.bearer | PROXY | headers)).status == status
        assert (await served.ask("/api/v1/routes", headers=PROXY | headers)).status == status


async def test_without_the_key_no_page_of_a_proxy_changes_anything(served: DaemonHarness) -> None:
    sent = served.bearer | PROXY | {"Host": f"127.0.0.1:{served.port}"}
    assert (await served.ask("/api/v1/pause", PAUSE, headers=sent)).status == 403


async def test_a_browser_that_asks_first_is_not_let_in(served: DaemonHarness) -> None:
    asked = await served.ask("/api/v1/pause", method="OPTIONS", headers={"Origin": "http://evil.example"})
    assert asked.status in (403, 405)
    assert not [name for name in asked.headers if name.lower().startswith("access-control")]


async def test_nothing_is_kept_or_taken_for_something_else(served: DaemonHarness) -> None:
    for path in ("/api/v1", "/api/v1/nothing", "/metrics"):
        headers = (await served.ask(path)).headers
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


@pytest.mark.needs("judge", "pause")
async def test_refusals_and_changes_are_lines_of_the_audit_log(
    served: DaemonHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    await served.ask("/api/v1/pause", PAUSE, headers={})
    await served.ask("/api/v1/dead-letters/1", headers={})
    await served.ask("/api/v1/pause", PAUSE, headers={"Origin": "http://evil.example"})
    await served.ask("/api/v1/routes", headers={"Origin": "http://evil.example"})
    await served.ask("/api/v1/pause", PAUSE)
    await served.ask("/api/v1/resume", PAUSE, headers=served.bearer | {"Ustreamer-User": "alice for bob"})
    await served.ask("/api/v1/reload", {}, headers=served.bearer | {"Ustreamer-User": "x where=y"})
    no_token = "reason=expected Authorization: Bearer, with the streamer's token"
    origin = "reason=refused to pages of other origins: expected no Origin, this one, or one of metrics.origins"
    assert audited(caplog) == [
        f"denied who=http where=127.0.0.1 {no_token} path=/api/v1/pause",
        f"denied who=http where=127.0.0.1 {no_token} path=/api/v1/dead-letters/1",
        f"denied who=http where=127.0.0.1 {origin} path=/api/v1/pause",
        f"paused who=http where=127.0.0.1 rule={SPEED} rules=1",
        f"resumed who=alice for bob where=command line rule={SPEED} rules=0",
        f"reloaded who=http where=127.0.0.1 file={served.file} routes=2",
    ]


async def test_no_answer_has_a_secret(served: DaemonHarness) -> None:
    token = served.token_file.read_text().strip()
    for path in ("", "/config", "/endpoints", "/routes", "/paused"):
        assert token not in (await served.ask(f"/api/v1{path}")).text
    wrong = await served.ask("/api/v1/pause", PAUSE, headers={"Authorization": f"Bearer {token}x"})
    assert token not in wrong.text


async def test_the_scripts_of_the_console_come_whatever_origin_a_browser_says(served: DaemonHarness) -> None:
    """Behind a proxy that ends TLS, a browser sends an https Origin with a module, and the daemon is asked over http."""
    headers = {"Origin": "https://gw.example", "Sec-Fetch-Site": "cross-site"}
    for name in ("", "console.js", "console.css"):
        asked = await served.ask(f"/console/{name}", headers=headers)
        assert asked.status == 200
        assert not [each for each in asked.headers if each.lower().startswith("access-control")]
    assert (await served.ask("/api/v1/routes", headers=headers)).status == 403
