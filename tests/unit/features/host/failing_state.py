"""Tables on a disk that fails when the test says so."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamer.features.host.state import StateError, Statement
from tests.hosted import StateOn


class FailingState(StateOn):
    """``gate`` is waited for before anything is written."""

    def __init__(self, path: Path | None, tables: Mapping[str, str]) -> None:
        super().__init__(path, tables)
        self.fails = False
        self.gate: asyncio.Event | None = None

    async def write(self, statements: Sequence[Statement], most_s: float | None = None) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise StateError("the disk is full")
        await super().write(statements)
