"""What is free goes back to the system."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from streamer import main
from streamer.config.models import Config
from streamer.tools import memory

_MIB = 1024 * 1024

# In a process of its own: other tests leave memory in every state.
_PROGRAM = """
import resource, threading
from pathlib import Path
from streamer.tools.memory import give_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

{make}
give_back()
print(resident(), len(kept))
"""
_SMALL = "blocks = [bytes(2000) for _ in range(32_000)]; kept = blocks[::400]; del blocks"
_LARGE = "blocks = [bytes(60_000 + n) for n in range(1_000)]; kept = blocks[::50]; del blocks"
_IN_A_THREAD = f"""
def work():
    global kept
    {_SMALL}

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("make", [_SMALL, _LARGE, _IN_A_THREAD], ids=["small", "large", "in a thread"])
def test_memory_between_blocks_that_stay_is_given_back(make: str) -> None:
    def resident_bytes(make: str) -> int:
        output = subprocess.check_output([sys.executable, "-c", _PROGRAM.format(make=make)], text=True, timeout=60)
        return int(output.split()[0])

    assert resident_bytes(make) < resident_bytes("kept = []") + 8 * _MIB


async def test_memory_is_given_back_again_and_again_while_the_daemon_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    times = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    class Daemon:
        must_restart = True

        def __init__(self, config: Config, path: Path) -> None:
            pass

        async def run(self) -> int:
            for _ in range(3):
                await asyncio.wait_for(times.acquire(), 30)
            return 7

    monkeypatch.setattr("streamer.daemon.Daemon", Daemon)
    monkeypatch.setattr(memory, "EVERY_S", 0.01)
    monkeypatch.setattr(memory, "give_back", lambda: loop.call_soon_threadsafe(times.release))
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    assert await main._serve(Config.model_construct(), Path())


@pytest.mark.parametrize(
    ("said", "name", "folder"),
    [("0::/a.slice/b\n", "memory.max", ""), ("3:cpu:/x\n4:memory:/a.slice/b\n", "memory.limit_in_bytes", "memory")],
)
def test_the_limits_of_all_control_groups_of_the_process_count(said: str, name: str, folder: str, tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text(said)
    top = tmp_path / "fs" / folder
    (top / "a.slice/b").mkdir(parents=True)
    (top / "a.slice/b" / name).write_text("max\n")
    (top / "a.slice" / name).write_text("1048576\n")
    (tmp_path / name).write_text("1\n")  # outside
    found = memory.allowed_bytes(tmp_path / "cgroup", tmp_path / "fs")
    assert found.pop("this machine") > 1 << 20
    assert found == {str(top / "a.slice" / name): 1048576}


def test_a_process_without_control_groups_has_the_machine(tmp_path: Path) -> None:
    assert list(memory.allowed_bytes(tmp_path / "none", tmp_path)) == ["this machine"]


@pytest.mark.parametrize(
    ("said", "limits"), [("1073741824", {"MemoryMax of streamer.service": 1 << 30}), ("infinity", {}), ("", {})]
)
def test_the_limit_of_the_service_counts_whether_it_runs_or_not(
    said: str, limits: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\necho {said}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert memory.unit_bytes() == limits
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert memory.unit_bytes() == {}
