"""Asking a running daemon: what answers may be something else."""

import socket
import threading
from pathlib import Path

import pytest

from streamer.tools.running import DaemonAddress, ask
from tests.certificates import write_certificates
from tests.unit.tools.commands import GOOD, answering, response, status_of

TOKEN = "0123456789abcdef0123"


@pytest.mark.needs("tap")
def test_what_redirects_is_no_streamer_and_the_token_goes_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)

        def answer() -> None:
            connection, _ = first.accept()
            with connection:
                connection.recv(65536)
                place = f"http://127.0.0.1:{other.getsockname()[1]}/"
                connection.sendall(f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())

        answering = threading.Thread(target=answer)
        answering.start()
        try:
            url = f"http://127.0.0.1:{first.getsockname()[1]}"
            assert status_of("tap", "--url", url, "--token-file", str(tmp_path / "token")) == 1
        finally:
            answering.join()
        assert "it answers 302 Found; is it a streamer" in capsys.readouterr().err
        with pytest.raises(BlockingIOError):
            other.accept()


@pytest.mark.parametrize(
    ("asked", "is_secret", "is_sent"), [(None, False, False), (None, True, True), ({"all": True}, False, True)]
)
def test_the_token_is_read_and_sent_only_for_what_needs_it(
    asked: dict[str, bool] | None, is_secret: bool, is_sent: bool
) -> None:
    """Whoever may not read its file can still look."""
    read: list[str] = []

    def token() -> str:
        read.append(TOKEN)
        return TOKEN

    with answering(response("200 OK", '{"name": "gw"}')) as (port, sent):
        daemon = DaemonAddress(f"http://127.0.0.1:{port}", "gw", token)
        assert ask(daemon, "/page", lambda told: str(told["name"]), asked, is_secret=is_secret) == "gw"
    assert (f"Authorization: Bearer {TOKEN}" in sent[0], read) == (is_sent, [TOKEN] * is_sent)


@pytest.mark.needs("tap")
@pytest.mark.parametrize("option", ["--ca-file", "--client-cert"])
def test_what_the_options_say_about_tls_counts_beside_a_configuration_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    write_certificates(tmp_path)
    config = tmp_path / "streamer.yaml"
    tls = f"tls: {{cert_file: {tmp_path}/server.pem, key_file: {tmp_path}/server.key}}"
    config.write_text(GOOD.replace("metrics: null", f'metrics: {{listen: "127.0.0.1:9464", {tls}}}'))
    assert status_of("tap", "--config", str(config), option, str(tmp_path / "missing.pem")) == 2
    assert "--ca-file, --client-cert, --client-key: cannot be used (No such file" in capsys.readouterr().err
