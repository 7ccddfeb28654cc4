"""One thing that a configuration costs, beside what it cost before and what was needed. Pure."""

from typing import NamedTuple


class Cost(NamedTuple):
    """A bound that a configuration sets: on memory, on a disk, on a throughput, or a quota.

    ``key`` is its place in the file, or empty if it is a sum; ``what`` says it in words. ``peak`` is the highest value of
    the last week, None if it is not known. ``text`` is the whole sentence for people.
    """

    key: str
    what: str
    unit: str
    before: float | None
    after: float | None
    peak: float | None
    text: str

    @property
    def is_short(self) -> bool:
        """Whether the bound is below what was needed."""
        return self.peak is not None and self.after is not None and self.after < self.peak
