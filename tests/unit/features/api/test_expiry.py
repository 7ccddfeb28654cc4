"""When certificates expire, in the metrics: of MQTT, of Zenoh, of the HTTP port."""

import asyncio
import json
import ssl
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamer.main import main
from tests.certificates import DAY, write_certificates
from tests.ports import HOST, free_port
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.waiting import until

NAME = "ustreamer_certificate_expiry_timestamp_seconds"


async def days(served: DaemonHarness, folder: Path) -> dict[tuple[str, str, str], int]:
    """The days that are left, by endpoint, role and file."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    url = served.url.replace("http:", "https:") + "/metrics"
    text = await asyncio.to_thread(lambda: urlopen(url, context=context).read().decode())
    now_s = datetime.now(UTC).timestamp()
    return {
        (sample.labels.get("endpoint", ""), sample.labels["role"], Path(sample.labels["file"]).name): round(
            (sample.value - now_s) / DAY.total_seconds()
        )
        for family in text_string_to_metric_families(text)
        if family.name == NAME
        for sample in family.samples
    }


async def test_every_certificate_in_use_is_there_and_a_new_one_is_noticed(tmp_path: Path) -> None:
    write_certificates(tmp_path, server=40 * DAY, client=50 * DAY, ca=60 * DAY)
    ca, cert, key, server, server_key = (
        str(tmp_path / name) for name in ("ca.pem", "client.pem", "client.key", "server.pem", "server.key")
    )
    zenoh = {"root_ca_certificate": ca, "listen_certificate": server, "listen_private_key": server_key}
    (tmp_path / "zenoh.json5").write_text(json.dumps({"transport": {"link": {"tls": zenoh}}}))
    tls = {"ca_file": ca, "cert_file": cert, "key_file": key}
    mqtt5 = {"broker": f"mqtts://{HOST}:{free_port()}", "tls": tls}
    listen = {"config_file": str(tmp_path / "zenoh.json5"), "listen": [f"tls/{HOST}:{free_port()}"]}
    endpoints = {
        "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": mqtt5},
        "vehicle": {"transport": "zenoh", "authorities": ["veh1"], "options": listen},
    }
    port = {"cert_file": server, "key_file": server_key, "client_ca_file": ca}
    async with running(tmp_path, tls=port, endpoints=endpoints) as served:
        expiry = served.daemon._admin._expiry
        await until(lambda: bool(expiry.until_s), "the first reading")
        there = {
            ("cloud", "authorities", "ca.pem"): 60,
            ("cloud", "client", "client.pem"): 50,
            ("vehicle", "authorities", "ca.pem"): 60,
            ("vehicle", "server", "server.pem"): 40,
            ("", "server", "server.pem"): 40,
            ("", "authorities", "ca.pem"): 60,
        }
        assert await days(served, tmp_path) == there
        (tmp_path / "new").mkdir()
        write_certificates(tmp_path / "new", client=70 * DAY)
        (tmp_path / "new/client.pem").replace(tmp_path / "client.pem")
        before = expiry.until_s
        expiry._due_s = 0.0  # a minute has passed
        await until(lambda: expiry.until_s is not before, "the next reading")
        assert await days(served, tmp_path) == there | {("cloud", "client", "client.pem"): 70}
        (tmp_path / "client.pem").write_text("nothing")
        before = expiry.until_s
        expiry._due_s = 0.0
        await until(lambda: expiry.until_s is not before, "the next reading")
        del there["cloud", "client", "client.pem"]
        assert await days(served, tmp_path) == there


def probed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    out = capsys.readouterr().out
    found = {}
    for line in out.splitlines():
        if "(expiry)" in line:
            verdict, _, rest = line.partition("  ")
            found[rest.strip().partition(": ")[0]] = verdict
    return found


@pytest.mark.needs("check")
def test_the_probe_names_every_one_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_certificates(tmp_path, server=20 * DAY, client=50 * DAY, ca=-DAY)
    (tmp_path / "zenoh.json5").write_text(
        json.dumps({"transport": {"link": {"tls": {"root_ca_certificate": str(tmp_path / "ca.pem")}}}})
    )
    (tmp_path / "streamer.yaml").write_text(f"""
authority: gateway
endpoints:
  cloud:
    transport: mqtt5
    authorities: ["*"]
    options:
      broker: mqtts://{HOST}:{free_port()}
      tls: {{cert_file: {tmp_path}/client.pem, key_file: {tmp_path}/client.key}}
  vehicle:
    transport: zenoh
    authorities: [veh1]
    options: {{config_file: {tmp_path}/zenoh.json5, connect: ["tls/{HOST}:{free_port()}"]}}
routes: [{{from: vehicle, to: cloud}}]
metrics:
  listen: {HOST}:{free_port()}
  tls: {{cert_file: {tmp_path}/server.pem, key_file: {tmp_path}/server.key}}
""")
    assert main(["check", "--probe", "--config", str(tmp_path / "streamer.yaml")]) == 1
    assert probed(capsys) == {
        "metrics.tls.cert_file (expiry)": "warning",
        "endpoints.cloud.options.tls.cert_file (expiry)": "ok",
        "endpoints.vehicle.options.config_file": "problem",
    }
