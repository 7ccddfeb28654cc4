"""The services of the streamer, killed: 16."""

from tests.fault.killed_services import KilledServices
from tests.fault.ledger import Verdict
from tests.fault.registry import Run, fault


@fault(16, "services killed in a dialogue")
async def services_killed(run: Run) -> Verdict:
    """Raises what was broken. There are no networks, so there is no ledger either."""
    figures = KilledServices(run.directory, run.seed).play(60 if run.is_long else 20)
    assert figures["kills"] > 0
    return Verdict(figures=figures)
