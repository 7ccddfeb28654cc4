"""A reload that cuts its own link, at a gateway without a console: it is back, and the reason is in the cloud."""

from pathlib import Path
from typing import Any

import pytest

from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from tests import preloaded
from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.ports import HOST, free_port
from tests.waiting import until

SPEED, STATUS = ("alpha", 0x10, 1, 0x8001), ("gw", 4, 1, 0x8002)
WHY = "endpoint second was up and stays down"


@pytest.mark.long
async def test_a_reload_that_cuts_its_own_link_is_back_with_the_reason_in_the_cloud(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "journal": {"path": str(tmp_path / "journal.db")},
        "status": {"every_s": 1},
        "shutdown": {"drain_s": 1},
    }
    async with Topology("mqtt/in-vehicle", "mqtt/in-vehicle", **changes) as topology:
        daemon, far = topology.daemon, topology.networks[1].side
        changed = topology.configuration()
        changed["endpoints"]["second"]["options"]["broker"] = f"mqtt://{HOST}:{free_port()}"
        daemon.write(changed | {"metrics": daemon.config["metrics"]})
        answer = await preloaded.command("reload", "--config", daemon.path, "--probation", "2m", within_s=180)
        assert (answer.returncode, answer.stderr) == (1, f"gone back: {WHY}\n")
        await daemon.until_up()

        def notes() -> list[str]:
            statuses = [pb.Status.FromString(each.payload) for each in far.arrived if each.source == STATUS]
            return [note for status in statuses for note in status.notes]

        await until(lambda: any(note.endswith(WHY) for note in notes()), what="the reason in the cloud")
        message = Plain(1, SPEED, payload=b"again", payload_format=6, priority=2)
        await topology.networks[0].side.send([message])
        await until(lambda: message in far.arrived, what="a message over the link that is back")
        daemon.check_books()
