"""What a pair adds to the published status."""

from types import SimpleNamespace
from typing import cast

from streamer.clock import SystemClock
from streamer.features.pair.feature import _TEXT, PairFeature
from streamer.features.pair.paired import Paired
from streamer.features.pair.view import PairView
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from tests.flow.harness import configuration


def test_one_of_a_pair_says_whether_it_is_protected() -> None:
    view = PairView(True, "why", 0, 7, 1, False, "no link", "", True, False, "x" * 300, 0, 0, {})
    feature, status = PairFeature(configuration(), SystemClock()), pb.Status()
    feature.report(status)
    assert not status.HasField("pair")
    feature.paired = cast(Paired, SimpleNamespace(view=view))
    feature.report(status)
    assert (status.pair.epoch, status.pair.protected, status.pair.problem) == (7, False, "x" * _TEXT)
    feature.paired = cast(Paired, SimpleNamespace(view=view._replace(is_protected=True, problem="")))
    feature.report(status)
    assert (status.pair.protected, status.pair.problem) == (True, "")
