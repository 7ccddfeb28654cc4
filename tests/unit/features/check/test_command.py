"""``streamer check`` without ``--probe``: what it says about files."""

from pathlib import Path

import pytest
import yaml

from streamer.main import main


def test_each_file_that_is_not_there_is_named_with_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration is good: it may be for another machine."""
    (tmp_path / "there").write_text("a secret of 18 byte")
    tls = {"cert_file": str(tmp_path / "there"), "key_file": str(tmp_path / "missing.pem")}
    config = {
        "authority": "gw",
        "endpoints": {"cloud": {"transport": "memory", "authorities": ["*"]}},
        "routes": [],
        "metrics": {"listen": "127.0.0.1:0", "tls": tls},
        "control": {"http_token_file": str(tmp_path / "missing.token")},
    }
    (tmp_path / "streamer.yaml").write_text(yaml.safe_dump(config))
    assert main(["check", "--config", str(tmp_path / "streamer.yaml")]) == 0
    hints = [
        line.partition("hint: ")[2] for line in capsys.readouterr().out.splitlines() if str(tmp_path / "missing") in line
    ]
    assert sorted(hints) == [
        f"control.http_token_file: {tmp_path}/missing.token: expected a file, found none",
        f"metrics.tls.key_file: {tmp_path}/missing.pem: expected a file, found none",
    ]
