"""The table of `make profile`: to which stage a stack belongs, in both forms of the hot path."""

import tomllib
from pathlib import Path

import pytest

from tests.bench.profile import LOOP, STAGES, SWITCHES, _compiled_names, stage_of, thread_of

COMPILED = _compiled_names()
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
MODULES: list[str] = PROJECT["tool"]["ustreamer"]["compiled"]


def test_the_innermost_frame_with_a_stage_decides() -> None:
    outer = ["<module> (streamer/__main__.py:8)", "_serve (streamer/main.py:120)"]
    ingress = "Ingress._take (streamer/delivery/inbound/ingress.py:240)"
    assert stage_of([*outer, ingress, "RouteQueue.push (streamer/delivery/lanes/queue.py:1)"], COMPILED) == "lane"
    assert stage_of([*outer, ingress, "UMessage.is_expired (streamer/uprotocol/message.py:1)"], COMPILED) == "ingress"
    assert stage_of([*outer, "uv__io_poll (libuv.so)"], COMPILED) == LOOP


def test_compiled_functions_are_known_by_the_names_of_their_modules() -> None:
    library = "(streamer__mypyc.cpython-311-x86_64-linux-gnu.so)"
    assert stage_of([f"CPyDef_egress___Egress____collect {library}"], COMPILED) == "egress"
    assert stage_of([f"CPyDef_mqtt5___wire___Encoder___encode {library}"], COMPILED) == "encode"
    assert stage_of([f"CPyDef_zenoh___wire___SampleDecoder___decode {library}"], COMPILED) == "decode"
    assert stage_of([f"CPyPy_mqtt5___wire____write {library}"], COMPILED) == "encode"
    assert (
        stage_of([f"CPyDef_session___Session___on_puback {library}", "dict_pop (libpython3.11.so)"], COMPILED) == "session"
    )


def test_waiting_for_another_thread_is_a_stage_of_its_own() -> None:
    frames = ["Sender._lend (streamer/transports/zenoh/sender.py:1)", "take_gil (libpython3.11.so)", "futex (libc.so)"]
    assert stage_of(frames, COMPILED) == SWITCHES


@pytest.mark.parametrize("name", [name for name in MODULES if name.split(".")[1] in ("delivery", "transports", "journal")])
def test_the_modules_of_the_hot_path_have_stages(name: str) -> None:
    path = "/".join(name.split("."))
    assert stage_of([f"function ({path}.py:1)"], COMPILED) in STAGES


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("MainThread", "event loop"),
        ("vehicle-send", "sender"),
        ("journal", "journal"),
        ("rx-0", "Zenoh"),
        ("python", "other"),
    ],
)
def test_threads_are_known_by_their_names(name: str, kind: str) -> None:
    assert thread_of(name) == kind
