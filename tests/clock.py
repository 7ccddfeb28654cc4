"""The clock of tests: it moves only when it is told to."""

START_MS = 1_700_000_000_000


class FakeClock:
    """A wall clock and a monotonic clock. `advance` moves both; a test that sets ``ms`` steps the wall clock alone."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms
        self.s = 100.0

    def wall_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.s

    def advance(self, ms: int) -> None:
        self.ms += ms
        self.s += ms / 1000
