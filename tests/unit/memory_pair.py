"""Two daemons of a pair, each a process of its own. No tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.ports import HOST, free_port
from tests.unit.memory_daemon import Process


class Two:
    def __init__(self, folder: Path) -> None:
        self.both = []
        port, key = free_port(), folder / "key"
        key.write_text("k" * 40)
        for name, where in (("a", "listen"), ("b", "connect")):
            (folder / name).mkdir()
            process = Process(folder / name)
            pair = f"pair: {{{where}: '{HOST}:{port}', key_file: {key}}}\n"
            process.file.write_text(process.file.read_text() + f"journal: {{path: {folder / name / 'journal.db'}}}\n" + pair)
            self.both.append(process)

    def active(self) -> Process:
        return next(each for each in self.both if "ustreamer_pair_active 1.0" in each.get("/metrics"))

    def standby(self) -> Process:
        return next(each for each in self.both if each is not self.active())

    async def until_ready(self) -> None:
        for each in self.both:
            await each.until(lambda each=each: '"ready": true' in each.body("/readyz"))  # type: ignore[misc]
        await self.both[0].until(lambda: "ustreamer_pair_protected 1.0" in self.active().get("/metrics"))


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[Two]:
    found = Two(folder)
    try:
        for each in found.both:
            await each.start()
        await found.until_ready()
        yield found
    finally:
        for each in found.both:
            each.process.kill()
            await each.end()
            each.systemd.close()
