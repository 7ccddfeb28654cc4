"""The how-to page about alerts of a parked car, with the real Alertmanager where it is installed, and promtool."""

import asyncio
import json
import re
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alert_rules import alerts
from tests.e2e.how_to import PAGES, Gateway
from tests.pages import INLINE, ROOT
from tests.ports import HOST, free_port
from tests.programs import require
from tests.waiting import until

PAGE = PAGES / "silence-alerts.md"
RULES = ROOT / "deploy/prometheus/ustreamer-rules.yaml"
HOURS = 7
MINUTES = HOURS * 60


def listed() -> list[list[str]]:
    """The alerts of the page's table, by row."""
    rows = re.findall(r"^\| (`.*|all .*) \|", PAGE.read_text(), re.MULTILINE)
    return [INLINE.findall(row.partition(" | ")[0]) for row in rows]


def parked(instance: str, is_on: bool) -> list[dict[str, str]]:
    """What Prometheus knows of a parked car, a sample a minute: it waits in vain for its links, or is off after an hour."""
    labels = f'job="s", instance="{instance}"'
    route = f'{labels}, route="vehicle-cloud", ingress="vehicle", egress="cloud"'
    link = f'{labels}, transport="mqtt5"'
    grows, all_the_time = f"0+20x{MINUTES}", f"1x{MINUTES}"
    series = {
        f"up{{{labels}}}": all_the_time if is_on else f"1x60 0x{MINUTES - 61}",
        f"vehicle_parked{{{labels}}}": all_the_time,
    }
    scraped = {
        f'ustreamer_build_info{{{labels}, version="1", authority="g"}}': all_the_time,
        f'ustreamer_endpoint_up{{{link}, endpoint="cloud"}}': f"0x{MINUTES}",
        f'ustreamer_endpoint_up{{{link}, endpoint="vehicle"}}': f"0x{MINUTES}",
        f'ustreamer_reconnects_total{{{link}, endpoint="cloud"}}': f"0+1x{MINUTES}",
        f"ustreamer_accepted_messages_total{{{route}}}": grows,
        f'ustreamer_outcomes_total{{{route}, outcome="expired", code="DEADLINE_EXCEEDED"}}': grows,
        f'ustreamer_dead_letters_total{{{labels}, route="vehicle-cloud", code="DEADLINE_EXCEEDED"}}': grows,
        f"ustreamer_queue_messages{{{route}}}": f"0x{MINUTES}",
    }
    off = {
        name: re.sub(r"x\d+$", "x3", values) + " stale"
        for name, values in scraped.items()
        if "_total" not in name and "_up" not in name
    }
    return [{"series": name, "values": values} for name, values in (series | (scraped if is_on else off)).items()]


@pytest.mark.promtool
def test_a_parked_car_fires_what_the_page_says(tmp_path: Path) -> None:
    of_links, of_power, others = listed()
    assert {*of_links, *of_power, *others} <= alerts().keys()
    (rule,) = [block for block in re.findall(r"```yml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "groups" in block]
    (tmp_path / "vehicles.yaml").write_text(rule)
    test = {
        "rule_files": [str(RULES), str(tmp_path / "vehicles.yaml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [*parked("on", is_on=True), *parked("off", is_on=False)],
                "promql_expr_test": [
                    {
                        "expr": 'count by (instance, alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": f"{HOURS}h",
                        "exp_samples": [
                            {"labels": f'{{instance="{instance}", alertname="{name}"}}', "value": count}
                            for instance, names in {"on": of_links, "off": of_power}.items()
                            for name in [*names, "VehicleParked"]
                            for count in [2 if name == "UstreamerEndpointDown" else 1]
                        ],
                    }
                ],
            }
        ],
    }
    file = tmp_path / "parked.test.yaml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@asynccontextmanager
async def alertmanager(directory: Path, inhibition: dict[str, Any]) -> AsyncIterator[str]:
    """Alertmanager with a rule of inhibition: its address."""
    program = require("prometheus-alertmanager")
    config = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]} | inhibition
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(config))
    at = f"{HOST}:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        program,
        f"--config.file={directory / 'alertmanager.yml'}",
        f"--storage.path={directory}",
        f"--web.listen-address={at}",
        "--cluster.listen-address=",
        stderr=asyncio.subprocess.DEVNULL,
    )

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://{at}/-/ready", timeout=5) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    try:
        await until(answers, "Alertmanager")
        yield at
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_silence_alerts(tmp_path: Path) -> None:
    require("amtool")
    of_links, of_power, others = listed()
    silenced = [*of_links, *of_power]

    async with Gateway(tmp_path / "gateway", "silence-alerts", {}) as page:
        assert "VehicleParked" in page.text("yml")
        inhibition = yaml.safe_load(page.text("yml"))
        async with alertmanager(tmp_path, inhibition) as at:
            page.places["127.0.0.1:9093"] = at

            def fire(*alerts: tuple[str, str]) -> None:
                body = [{"labels": {"alertname": name, "instance": f"{instance}:9464"}} for name, instance in alerts]
                headers = {"Content-Type": "application/json"}
                urllib.request.urlopen(
                    urllib.request.Request(f"http://{at}/api/v2/alerts", json.dumps(body).encode(), headers), timeout=10
                ).close()

            def active() -> set[tuple[str, str]]:
                with urllib.request.urlopen(
                    f"http://{at}/api/v2/alerts?active=true&silenced=false&inhibited=false"
                ) as answer:
                    return {
                        (each["labels"]["alertname"], each["labels"]["instance"].partition(":")[0])
                        for each in json.load(answer)
                    }

            # gw1 is in the workshop, gw2 is parked, gw3 drives
            everything = [(name, gateway) for gateway in ("gw1", "gw2", "gw3") for name in [*silenced, *others]]
            fire(*everything, ("UstreamerJournalDown", "gw1"), ("VehicleParked", "gw2"))
            await page.do()
            expected = {(name, gateway) for name, gateway in everything if gateway == "gw3" or name in others}
            expected |= {("UstreamerJournalDown", "gw1"), ("VehicleParked", "gw2")}
            await until(lambda: active() == expected, "what would wake up somebody")
            said = await page.do()
            assert not any(name in said for name in silenced)
