"""The pause service and its pages at the HTTP port, without the rest of a daemon. No tests."""

from collections.abc import Sequence
from pathlib import Path

from streamer.config.metrics import ControlConfig, MetricsConfig
from streamer.features.api.metrics import Exposition
from streamer.features.api.server import AdminServer
from streamer.features.host.access import Access
from streamer.features.host.state import StateError, Statement
from streamer.features.pause.page import PausePages
from streamer.features.pause.service import PauseService
from tests.flow.harness import GATEWAY, SPEED, RouterHarness
from tests.hosted import StateOn
from tests.ports import free_port

TOPIC = str(SPEED)
SINK = "//cloud/C0/1/0"
TOKEN = "T0p-Secret-0123456789"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class FailingState(StateOn):
    fails = False

    async def write(self, statements: Sequence[Statement], most_s: float | None = None) -> None:
        if self.fails:
            raise StateError("the disk is full")
        await super().write(statements, most_s)


class AdminHarness:
    """A router, the pause service and the HTTP port, as the daemon has them."""

    def __init__(self, options: ControlConfig, token_file: Path) -> None:
        token_file.write_text(TOKEN)
        self.options = options = options.model_copy(update={"http_token_file": token_file})
        self.harness = RouterHarness()
        self.state = FailingState(None, PauseService.TABLES)
        router = self.harness.router
        self.control = PauseService(self.state, router, options, Access(GATEWAY, frozenset({GATEWAY})), router.clock)
        self.port = free_port()
        listening = MetricsConfig(listen=f"127.0.0.1:{self.port}", hosts=["streamer"])
        self.server = AdminServer(router, Exposition(router), listening, options, PausePages(self.control).routes())
