"""The how-to page about judging a change, followed literally, pipelines included."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.how_to import TO_CLOUD, Broker, Gateway, up
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.pages import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.mosquitto, pytest.mark.timeout(300)]

EXAMPLE = ROOT / "examples/pipeline"


async def test_judge_a_change(tmp_path: Path) -> None:
    with Broker() as broker:
        async with (
            Gateway(tmp_path, "judge-a-change", {"mqtt://127.0.0.1:1883": broker.url}) as gateway,
            MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud,
        ):
            gateway.start()
            async with ZenohSide(connect=[gateway.vehicle_at]) as vehicle:
                await gateway.until_up()
                await vehicle.until_subscribed(up(0))
                await vehicle.send([up(0)])
                await until(lambda: len(cloud.arrived) == 1, "the message in the cloud")

                changed = gateway.path.with_name("new.yaml")
                changed.write_text(gateway.path.read_text().replace("//veh1/FFFFFFFF/FF/FFFF", "//veh1/A8000/2/8A51", 1))
                assert changed.read_text() != gateway.path.read_text()
                gateway.path.with_name("expect.yaml").write_text(gateway.text("yml"))
                await gateway.do()
                await gateway.do(status=1)
                await gateway.do(lines=1)
                await gateway.do(status=1)

                await vehicle.send([up(1)])
                await until(lambda: len(cloud.arrived) == 2, "the gateway goes on as before")
            for name in ("gitlab-ci.yml", "github.yml"):
                await pipeline(gateway, tmp_path / name.partition(".")[0], gateway.text("yml"))


async def pipeline(gateway: Gateway, folder: Path, text: str) -> None:
    """What the page has for a CI service, on a branch with a good change, then with one that moves flows."""
    assert text in [path.read_text() for path in EXAMPLE.iterdir()]
    job = yaml.safe_load(text)
    steps = job["judge"]["script"] if "judge" in job else [step.get("run") for step in job["jobs"]["judge"]["steps"]]
    commands = [step for step in steps if step is not None and not step.startswith("pip ")]
    assert len(commands) >= 3
    repository(folder)
    config = folder / "streamer.yaml"
    variables = "export CI_DEFAULT_BRANCH=main GITHUB_BASE_REF=main"
    script = " && ".join([f"cd {folder}", variables, *commands])
    status, said = await gateway.shell(script)
    assert (status, "Nothing differs in meaning" in said) == (0, True), said
    config.write_text(config.read_text().replace("publish_to: [cloud]", "publish_to: [backup]"))
    status, said = await gateway.shell(script)
    assert (status, "would go elsewhere:** to cloud, addressed to backup" in said) == (1, True), said
    config.write_text(config.read_text().replace("//veh1/FFFFFFFF/FF/FFFF", "//veh1/B/1/8000"))
    status, said = await gateway.shell(script)
    assert (status, "1 failed" in said) == (1, True), said


def repository(folder: Path) -> None:
    """A clone of a repository that has the example on its main branch."""
    origin = folder.with_name(f"{folder.name}-origin")
    origin.mkdir()
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example", "-c", "init.defaultBranch=main"]
    for name in ("streamer.yaml", "expect.yaml"):
        (origin / name).write_text((EXAMPLE / name).read_text())
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "the file that is in use"]):
        subprocess.run([*git, *words], cwd=origin, check=True)
    subprocess.run([*git, "clone", "--quiet", str(origin), str(folder)], check=True)
