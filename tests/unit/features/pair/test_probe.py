"""``streamer check --probe`` of a pair: its key, its certificates, and where the two meet."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from streamer.features.check import probe
from streamer.tools.running import DaemonAddress
from tests.ports import HOST, free_port
from tests.unit.features.check.probing import checked, lines

T = TypeVar("T")

SECRET = "hunter2-hunter2-hunter2"


def probed(folder: Path, capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit status, and the answers about the pair."""
    options.setdefault("key_file", str(folder / "key"))
    metrics = options.pop("metrics", None)
    journal = {"path": str(folder / "journal.db"), "max_bytes": "1MiB"}
    status = checked(folder, journal=journal, pair=options, metrics=metrics)
    out = {key: answer for key, answer in lines(capsys).items() if key.startswith("pair.")}
    assert SECRET not in str(out)
    return status, out


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return file


@pytest.mark.parametrize(
    ("content", "expected"),
    [("short", "{key}: 5 bytes; expected at least 16"), (None, "{key}: no such file or directory"), ("x" * 15, "15 bytes")],
)
def test_a_key_that_cannot_be_used_is_a_problem(
    key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, expected: str
) -> None:
    key.unlink() if content is None else key.write_text(content)
    status, told = probed(tmp_path, capsys, listen=f"{HOST}:{free_port()}")
    assert (status, told["pair.key_file"][0]) == (1, "problem")
    assert expected.format(key=key).lower() in told["pair.key_file"][1].lower()


def test_the_one_that_listens_needs_the_address(key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    status, told = probed(tmp_path, capsys, listen=f"{HOST}:{port}")
    assert (status, told["pair.listen"]) == (0, ("ok", f"{HOST}:{port} is free"))
    assert told["pair.key_file"] == ("ok", "the file holds a key that is long enough")
    with socket.create_server((HOST, port)):
        status, told = probed(tmp_path, capsys, listen=f"{HOST}:{port}")
    assert (status, told["pair.listen"]) == (1, ("problem", f"{HOST}:{port}: address already in use"))


def test_the_other_one_need_not_be_there_yet(key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((HOST, 0)) as other:
        address = f"{HOST}:{other.getsockname()[1]}"
        status, told = probed(tmp_path, capsys, connect=address)
        assert (status, told["pair.connect"]) == (0, ("ok", f"{address} accepts connections"))
    status, told = probed(tmp_path, capsys, connect=address)
    text = f"{address}: connection refused: the other one of the pair does not answer"
    assert (status, told["pair.connect"]) == (0, ("warning", text))


@pytest.mark.parametrize(("authority", "verdict"), [("gw", "ok"), ("another", "problem")])
def test_the_address_of_the_streamer_that_runs_is_no_problem(
    key: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    authority: str,
    verdict: str,
) -> None:
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"

        def ask(daemon: DaemonAddress, page: str, read: Callable[[Any], T], **_: Any) -> T:
            running: dict[str, Any] = {"authority": authority, "endpoints": {}, "journal": None}
            return read({"config": running | {"pair": {"listen": address, "connect": None}}})

        monkeypatch.setattr(probe, "ask", ask)
        _, told = probed(tmp_path, capsys, listen=address, metrics={"listen": f"{HOST}:{free_port()}"})
    assert told["pair.listen"][0] == verdict


def test_certificates_that_cannot_be_used_are_a_problem(
    key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tls = {}
    for name in ("ca_file", "cert_file", "key_file"):
        tls[name] = str(tmp_path / name)
        (tmp_path / name).write_text("no certificate")
        (tmp_path / name).chmod(0o600)
    status, told = probed(tmp_path, capsys, listen=f"{HOST}:{free_port()}", tls=tls)
    assert (status, told["pair.tls"][0]) == (1, "problem")
    assert told["pair.tls"][1].startswith("cert_file, key_file: expected a certificate and the key")
    assert told["pair.tls.cert_file (expiry)"][0] == "problem"
