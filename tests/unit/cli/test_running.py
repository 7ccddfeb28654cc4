"""Asking a running daemon: what answers may be something else."""

import socket
import threading
from pathlib import Path

import pytest

from tests.unit.cli.commands import status_of

TOKEN = "0123456789abcdef0123"


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
