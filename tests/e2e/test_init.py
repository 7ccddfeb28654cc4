"""The daemon starts with what ``streamer init`` has written, for every role."""

from pathlib import Path

import pytest

from streamer.main import main
from streamer.tools.init_file import LISTEN, ROLES
from tests.ports import free_port
from tests.process import StreamerProcess
from tests.waiting import until


@pytest.mark.parametrize("role", ROLES)
async def test_daemon_starts_with_the_file_of_every_role(role: str, tmp_path: Path) -> None:
    streamer = StreamerProcess(tmp_path, {})
    nobody = f"mqtt://127.0.0.1:{free_port()}"
    zenoh = f"{LISTEN}tcp/127.0.0.1:{free_port()}"
    words = ["--device", f"dev-a={nobody if role == 'cloud-gateway' else zenoh}"]
    if ROLES[role].cloud:
        words += ["--cloud", f"backend=mqtt://127.0.0.1:{free_port()}"]
    else:
        words += ["--device", f"dev-b=tcp/127.0.0.1:{free_port()}" if role == "ubus" else f"dev-b={nobody}"]
    words += ["--journal", str(tmp_path / "journal.db"), "--metrics", f"127.0.0.1:{streamer.admin}"]
    assert main(["init", "--role", role, *words, "--output", str(streamer.path), "--force"]) == 0
    streamer.start()
    try:
        await until(lambda: streamer.get("/healthz")[0] == 200, what="an answer of the daemon")
        await until((tmp_path / "journal.db").exists, what="the journal, which a thread opens")
    finally:
        await streamer.__aexit__()
    assert streamer.process is not None
    assert streamer.process.returncode == 0, streamer.log
