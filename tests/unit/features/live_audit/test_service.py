"""The service sends rows at intervals, and takes those of streamers; the record finds where they live."""

import re
from pathlib import Path
from typing import Any

import pytest

from streamer.config.models import Config
from streamer.config.reload import beyond_reload
from streamer.config.tls import TlsError
from streamer.features.every import FILE
from streamer.features.live_audit import service as module
from streamer.features.live_audit.config import LiveAuditConfig
from streamer.features.live_audit.counter import MessageCounter
from streamer.features.live_audit.feature import LiveAuditFeature
from streamer.features.live_audit.rows import packed
from streamer.features.live_audit.service import LiveAudit
from streamer.features.live_audit.sums import FlowClass, IdCipher, Sum
from streamer.uprotocol.message import UMessageType, notification
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from streamer.uprotocol.well_known import USTREAMER
from tests.clock import START_MS, FakeClock
from tests.flow.harness import SPEED
from tests.unit.features.host.local_transport import RecordingLocalTransport
from tests.unit.features.live_audit.world import Row, tell

ROWS = UUri("gw", 4, 1, 0x8003)


class Sending:
    """A service that sends rows of what is counted by hand."""

    def __init__(self, every_s: float = 60) -> None:
        self.clock = FakeClock()
        self.local = RecordingLocalTransport("gw", USTREAMER)
        self.counter = MessageCounter(IdCipher().fold)
        options = LiveAuditConfig(to="hub", every_s=every_s)
        self.audit = LiveAudit(self.local, options, self.counter, None, lambda authority: ("cloud",), self.clock)

    def count(self, resource: int = 0x8A50) -> None:
        now_s = self.clock.monotonic_s()
        key = SPEED._replace(resource=resource), None
        message_id = new_id(self.clock.ms)
        self.counter.cell("cloud", 1, key, message_id, now_s, self.clock.ms).ids.extend(message_id)

    def pass_s(self, seconds: int) -> list[pb.AuditRows]:
        """The rows that were sent meanwhile."""
        self.local.said.clear()
        for _ in range(0, seconds, 5):
            self.clock.advance(5000)
            self.audit.run_once()
        return [pb.AuditRows.FromString(message.payload or b"") for message in self.local.said]


def test_rows_are_notifications_that_expire_after_a_day() -> None:
    sending = Sending()
    sending.count()
    (rows,) = sending.pass_s(60)
    (message,) = sending.local.said
    attributes = message.attributes
    assert (attributes.type, attributes.source, attributes.sink) == (UMessageType.NOTIFICATION, ROWS, USTREAMER.at("hub"))
    assert (attributes.ttl, rows.run, rows.number) == (86_400_000, START_MS, 0)


def test_rows_are_sent_no_more_often_than_configured() -> None:
    sending, sent = Sending(every_s=60), []
    for _ in range(12):
        sending.count()
        sent += sending.pass_s(20)
    assert [rows.number for rows in sent] == [0, 1, 2, 3]
    assert sending.pass_s(600)[0].number == 4
    assert sending.pass_s(600) == []


def test_rows_for_which_there_is_no_room_leave_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 5)
    sending = Sending(every_s=3600)
    for number in range(6):
        sending.count(0x8000 + number)
    assert sending.pass_s(30) == []
    sending.count()
    assert [rows.number for rows in sending.pass_s(3600)] == [1]


@pytest.mark.parametrize(
    ("source", "is_taken"), [(ROWS, True), (UUri("veh1", 0xA8000, 2, 0x8003), False)], ids=["a streamer", "another uEntity"]
)
def test_rows_are_those_of_a_streamer(source: UUri, is_taken: bool) -> None:
    row = Row("gw-a")
    (rows,) = packed(1, 0, [(FlowClass("veh1", "cloud"), START_MS // 60_000, {1: Sum(1, 1)})])
    tell(row.cloud.audit, notification(START_MS, source, USTREAMER.at("hub"), rows.SerializeToString()))
    assert row.cloud.audit.comparison is not None
    assert list(row.cloud.audit.comparison.streamers) == ([source.authority] if is_taken else [])


def test_rows_that_cannot_be_read_are_ignored() -> None:
    row = Row("gw-a")
    rows = pb.AuditRows(classes=[pb.AuditClass(source=3)])
    tell(row.cloud.audit, notification(START_MS, ROWS, USTREAMER.at("hub"), rows.SerializeToString()))
    assert row.cloud.audit.comparison is not None
    assert not row.cloud.audit.comparison.entries


def config(**changes: Any) -> Config:
    mqtt = {"broker": "mqtt://127.0.0.1", "topics": "off-vehicle", "client_id": "hub"}
    return FILE.model_validate(
        {
            "authority": "hub",
            "endpoints": {
                "vehicles": {"transport": "mqtt5", "authorities": ["*"], "options": mqtt | changes},
                "cloud": {"transport": "memory", "authorities": ["cloud"]},
            },
            "routes": [{"from": "vehicles", "to": "cloud"}],
            "live_audit": {},
        }
    )


def test_a_streamer_is_not_compared_where_messages_are_divided_among_several() -> None:
    assert LiveAuditFeature(config(), FakeClock())._homes("gw") == ("vehicles",)
    assert LiveAuditFeature(config(share="hubs"), FakeClock())._homes("gw") == ()


def test_after_a_reload_differences_are_unknown_for_a_while() -> None:
    feature = LiveAuditFeature(config(), FakeClock())
    (comparison,) = feature.additions.interest
    assert comparison is feature._comparison
    feature._comparison.ours([(FlowClass("veh1", "cloud"), 1, {("vehicles", 0): Sum(1, 1)})], 0.0)
    assert feature._comparison._forwarded
    feature.use(config())
    assert not feature._comparison._forwarded


def test_a_streamer_without_the_section_counts_nothing() -> None:
    without = FILE.model_validate({**config().model_dump(exclude={"live_audit"}, by_alias=True), "live_audit": None})
    feature = LiveAuditFeature(without, FakeClock())
    assert (feature.additions.observers, feature.additions.steps, list(feature.families())) == ((), (), [])


def test_the_key_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a secret of 18 byte\n")
    sums = set()
    for key in (None, str(tmp_path / "key")):
        raw = {**config().model_dump(by_alias=True), "live_audit": {"key_file": key}}
        feature = LiveAuditFeature(FILE.model_validate(raw, strict=False), FakeClock())
        sums.add(feature._counter._fold(bytearray(16)))
    assert len(sums) == 2


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "No such file or directory"), ("\n", "0 bytes"), ("short\n", "5 bytes")]
)
async def test_a_key_that_cannot_be_used_is_named_with_its_file_and_what_was_expected(
    content: str | None, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    raw = {**config().model_dump(by_alias=True), "live_audit": {"key_file": str(path)}}
    given = FILE.model_validate(raw, strict=False)
    expected = f"{path}: {problem}; expected a file with a secret of at least 16 bytes"
    with pytest.raises(TlsError, match=f"^{re.escape('live_audit.key_file: ' + expected)}$"):
        LiveAuditFeature(given, FakeClock())
    (probe,) = (each for _, section in given.feature_sections() for each in section.probes(given, None))
    assert (probe.key, (await probe.run()).text) == ("live_audit.key_file", expected)


@pytest.mark.parametrize("change", [{"every_s": 60}, {"to": "hub2"}, None])
def test_a_reload_that_changes_the_section_is_refused(change: dict[str, Any] | None) -> None:
    raw = {**config().model_dump(by_alias=True), "live_audit": change}
    assert "live_audit" in " ".join(beyond_reload(config(), FILE.model_validate(raw, strict=False)))
