"""The two forms of the hot path: which modules are compiled, that none of them fell back, and what still holds for them.

`make test-compiled` runs this on the compiled form, and says so by ``USTREAMER_COMPILE=1``; `make test` on the pure one.
"""

import importlib
import os
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path

import pytest

from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.lanes.lane import Delivery, Lane
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.outbound.egress import Egress
from streamer.delivery.outcomes.settle import Settler
from streamer.main import FORM
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.intake import PacketIntake
from streamer.transports.mqtt5.session import MqttReceived, Session
from streamer.transports.mqtt5.traffic import Traffic
from streamer.transports.received import Received
from streamer.transports.zenoh.fifo_subscription import FifoSubscription
from streamer.transports.zenoh.sender import Publishers, Sender
from streamer.transports.zenoh.wire import SampleDecoder
from streamer.uprotocol.message import Attributes
from streamer.uprotocol.uri import UriError, UUri

ROOT = Path(__file__).parents[2]
IS_COMPILED = os.environ.get("USTREAMER_COMPILE") == "1"
MODULES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ustreamer"]["compiled"]
# Of these there is one for each message, or each message asks them.
HOT = (
    Attributes,
    Connection,
    Delivery,
    Egress,
    FifoSubscription,
    Ingress,
    Lane,
    MqttReceived,
    PacketIntake,
    PublishDecoder,
    Publishers,
    Received,
    RouteQueue,
    SampleDecoder,
    Sender,
    Session,
    Settler,
    Traffic,
)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_of_the_hot_path_has_the_form_that_was_asked_for(name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file is not None
    assert Path(file).suffix == (".so" if IS_COMPILED else ".py")
    source = ROOT / Path(*name.split(".")).with_suffix(".py")
    assert source.is_file()
    assert Path(file).parent == source.parent


@pytest.mark.parametrize("hot", HOT, ids=lambda hot: hot.__name__)
def test_the_compiled_classes_are_native(hot: type) -> None:
    """A class that mypyc cannot compile natively, such as one with a base that is not compiled, keeps a dict per object."""
    assert hot.__module__ in MODULES
    if IS_COMPILED:
        assert hot.__dictoffset__ == 0


def test_the_command_says_which_form_it_is() -> None:
    form = "compiled" if IS_COMPILED else "pure Python"
    assert form == FORM
    said = subprocess.run(
        [sys.executable, "-m", "streamer", "--version"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert said.stdout.endswith(f" ({form})\n")


def test_a_traceback_names_file_and_line_of_the_source() -> None:
    with pytest.raises(UriError) as caught:
        UUri.parse("nonsense")
    frames = traceback.extract_tb(caught.value.__traceback__)
    last = frames[-1]
    assert last.filename.endswith("streamer/uprotocol/uri.py")
    line = (ROOT / "streamer/uprotocol/uri.py").read_text().splitlines()[(last.lineno or 0) - 1]
    assert "raise UriError" in line


def test_a_class_that_is_not_compiled_may_derive_from_what_plugins_derive_from() -> None:
    class Kept(Received):
        """What a plugin does."""

        acknowledged = 0

        def acknowledge(self) -> None:
            self.acknowledged += 1

    kept = Kept.__new__(Kept)
    kept.holders, kept.is_acknowledged, kept._copies = 1, False, None
    kept.release()
    assert kept.acknowledged == 1
