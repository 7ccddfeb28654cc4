"""The page of the live audit is true, and so are the page of the HTTP port, the metrics and the command."""

import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from streamer.features.live_audit import comparison, counter, service
from streamer.features.live_audit.config import LiveAuditConfig
from streamer.features.live_audit.feature import LiveAuditFeature
from streamer.features.live_audit.page import families, routes
from streamer.uprotocol.uuid import format_id
from tests.pages import DOCS, plain, rows
from tests.programs import require
from tests.sse import next_event
from tests.unit.features.api.live import serving
from tests.unit.features.live_audit.world import Row, losing, settled
from tests.waiting import until

PAGE = DOCS / "features/live_audit.md"
TEXT = PAGE.read_text()


def exported(row: Row) -> dict[str, float]:
    """The metrics of the streamer that compares: name and verdict, value."""
    return {
        f"{sample.name}{sample.labels.get('verdict', '')}": sample.value
        for family in families(row.cloud.audit)
        for sample in family.samples
    }


async def with_a_loss() -> Row:
    row = await settled("gw-a")
    row["gw-a"].link = losing(*row.publish())
    row.pass_s(120, row.publish)
    return row


async def test_the_page_names_every_metric_and_no_other() -> None:
    there = {re.sub("(lost|equal|twice|unknown)$", "", name) for name in exported(await settled("gw-a"))}
    assert set(re.findall(r"`(ustreamer_live\w+)", TEXT)) == there


async def test_the_alert_fires_for_a_loss_and_not_before(tmp_path: Path) -> None:
    promtool = require("promtool")
    alert = re.search(r"^    groups:\n(    .*\n)+", TEXT, re.MULTILINE)
    assert alert is not None
    (tmp_path / "rules.yaml").write_text(textwrap.dedent(alert[0]))
    series = 'ustreamer_live_audit_messages_total{verdict="%s", instance="hub"}'
    labels = {"severity": "critical", "verdict": "lost", "instance": "hub"}
    summary = "hub: messages were lost on their way to it: streamer audit"
    tests = {
        "rule_files": ["rules.yaml"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": series % "lost", "values": "0x10 1x20"},
                    {"series": series % "unknown", "values": "0+5x30"},
                ],
                "alert_rule_test": [
                    {"eval_time": "10m", "alertname": "UstreamerMessagesLost", "exp_alerts": []},
                    {
                        "eval_time": "12m",
                        "alertname": "UstreamerMessagesLost",
                        "exp_alerts": [{"exp_labels": labels, "exp_annotations": {"summary": summary}}],
                    },
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tests))
    done = subprocess.run([promtool, "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_the_keys_with_their_defaults() -> None:
    listed = {plain(row[0]): yaml.safe_load(plain(row[1])) for row in rows(PAGE, "## Keys")}
    known = {name: field.default for name, field in LiveAuditConfig.model_fields.items()}
    assert {name: listed.get(name, "missing") for name in known} == known


def test_the_page_has_the_constants_of_the_code() -> None:
    seconds = comparison.QUIET_S, comparison.SETTLE_S, comparison.UNREPORTED_S
    assert [f"{value:g}" for value in seconds] == ["15", "150", "600"]
    for told in ("quiet for 15 s", "150 s before", "for ten minutes"):
        assert told in TEXT
    bounds = counter.MAX_MINUTES, counter.MAX_OF_SOURCE, comparison.MAX_ENTRIES, comparison.MAX_STREAMERS
    assert [f"{bound:,}".replace(",", " ") in TEXT or str(bound) in TEXT for bound in bounds] == [True] * 4
    assert (service.MAX_WAITING, service.FINDINGS) == (20_000, 1000)


async def answer_of(row: Row | None) -> Any:
    app = web.Application()
    app.add_routes(routes(None if row is None else row.cloud.audit))
    async with TestClient(TestServer(app)) as client, client.get("/api/v1/live-audit") as answer:
        return await answer.json()


async def test_a_loss_is_on_the_page_and_in_the_metrics() -> None:
    row = await with_a_loss()
    ((_, _, lost_id),) = row.found()
    answer = await answer_of(row)
    (finding,) = answer["findings"]
    assert lost_id is not None
    assert finding["id"].replace("-", "") == lost_id.hex()
    assert (finding["verdict"], finding["messages"], finding["streamer"]) == ("lost", 1, "gw-a")
    assert finding["class"] == "//veh1/A8000/2/8A50"
    assert (answer["compares"], answer["streamers"], answer["messages"]["lost"]) == (True, 1, 1)
    assert exported(row)["ustreamer_live_audit_messages_totallost"] == 1


async def test_a_new_finding_is_an_event_with_the_id_of_the_message(tmp_path: Path) -> None:
    row = await with_a_loss()
    async with serving(tmp_path, LiveAuditFeature) as (live, http):
        (feature,) = live.features
        assert isinstance(feature, LiveAuditFeature)
        feature.service = row.cloud.audit
        async with http.get("/api/v1/events?kinds=live_audit") as answer:
            await until(lambda: live.has_reader, "a reader")
            (lost,) = row.publish()
            row["gw-a"].link = losing(lost)
            row.pass_s(120, row.publish)
            live.tick(1000)
            found = await next_event(answer)
        assert found == ("live_audit", row.cloud.audit.findings[-1].shown())  # and not the loss before
        assert (found[1]["verdict"], found[1]["id"]) == ("lost", format_id(lost.id))
        async with http.get("/api/v1/events?kinds=live-audit") as answer:
            assert (await answer.json())["error"].endswith("paused, live_audit")


async def test_without_the_section_there_are_no_events(tmp_path: Path) -> None:
    async with serving(tmp_path, LiveAuditFeature) as (live, _):
        assert [list(each.events()) for each in live.features] == [[]]


async def test_without_a_live_audit_there_is_nothing() -> None:
    assert (await answer_of(None))["compares"] is False
