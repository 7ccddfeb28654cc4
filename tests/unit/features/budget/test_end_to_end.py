"""What the page of budgets says, on a real broker, whose bytes the kernel counts: over a restart, until a reload."""

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.pages import yaml_blocks
from tests.waiting import until

SPEED, DOORS = (("alpha", 0x10, 1, resource) for resource in (0x8001, 0x8002))
LOW, URGENT = 2, 6  # CS1, CS5
UP = {"route": "first-second"}


def of_the_page() -> dict[str, Any]:
    (block,) = [block for page, block in yaml_blocks() if page == "docs/features/budget.md"]
    budget: dict[str, Any] = yaml.safe_load(block)["endpoints"]["cloud"]["budget"]
    return budget


class Budgeted(Topology):
    """``budget``: of the second endpoint."""

    def __init__(self, budget: dict[str, Any], **changes: Any) -> None:
        super().__init__("mqtt/in-vehicle", "mqtt/in-vehicle", **changes)
        self.budget: dict[str, Any] | None = budget

    def configuration(self) -> dict[str, Any]:
        found = super().configuration()
        found["endpoints"]["second"]["budget"] = self.budget
        return found


def publish(source: tuple[str, int, int, int], priority: int, payload: bytes) -> Plain:
    return Plain(1, source, payload=payload, payload_format=6, priority=priority)


@pytest.mark.long
async def test_a_used_budget_lets_only_urgent_messages_through_until_it_is_raised(tmp_path: Path) -> None:
    changes = {"journal": {"path": str(tmp_path / "journal.db")}, "shutdown": {"drain_s": 1}}
    budgeted = Budgeted(of_the_page() | {"bytes": "64KiB"}, **changes)
    async with budgeted as topology:
        daemon, far = topology.daemon, topology.networks[1].side
        large = publish(SPEED, LOW, bytes(70_000))
        assert await topology.exchange(0, [large]) == [large]
        await until(lambda: daemon.total("ustreamer_budget_used_bytes", endpoint="second") > 70_000, what="the count")
        waiting, urgent = publish(SPEED, LOW, b"later"), publish(DOORS, URGENT, b"now")
        assert daemon.get("/readyz")[0] == 200
        assert "messages below CS5 are paused until" in daemon.get("/readyz")[1]
        await topology.networks[0].side.send([waiting, urgent])
        await until(lambda: far.arrived == [large, urgent], what="the urgent one")
        await daemon.until_total(1, "ustreamer_paused_messages", **UP)

        daemon.signal(signal.SIGTERM)
        await daemon.ended()
        daemon.start()
        await daemon.until_up()
        await daemon.until_total(1, "ustreamer_paused_messages", **UP)
        assert daemon.total("ustreamer_budget_used_bytes", endpoint="second") > 70_000

        budgeted.budget = of_the_page()
        daemon.write(daemon.config | {"endpoints": topology.configuration()["endpoints"]})
        daemon.signal(signal.SIGHUP)
        await until(lambda: far.arrived == [large, urgent, waiting], what="what had waited")
        daemon.check_books()
