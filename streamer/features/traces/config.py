"""The section `trace` of the configuration."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from streamer.config.claims import written
from streamer.config.models import Config, FeatureSection, FilledFolder
from streamer.config.types import GIB, MIB, FolderPath, Size, expected
from streamer.transports.base import LONGEST_S
from streamer.transports.claims import Claim

TRACE_MODULES = ("numpy", "pyarrow")
"""The modules that the extra ``trace`` installs."""

_ARROW_BYTES = 90_000_000 + 19 * MIB


def missing_for_traces() -> str:
    """Return what has to be installed to write or read traces, as text; empty: nothing."""
    missing = [name for name in TRACE_MODULES if find_spec(name) is None]
    return f"{' and '.join(missing)} installed (pip install 'uprotocol-ustreamer[trace]')" if missing else ""


def _can_be_written(path: Path) -> Path:
    """Return the folder for traces, or raise the error that says what has to be installed to write them."""
    if missing := missing_for_traces():
        raise expected(f"trace: null, or {missing}")
    return path


class TraceConfig(FeatureSection):
    """Where the routing traces are written, and how much of them is kept. Needs the extra ``trace``."""

    path: Annotated[FolderPath, AfterValidator(_can_be_written)]
    """A folder."""
    rotate_s: Annotated[float, Field(gt=0, le=LONGEST_S)] = 300
    """A file is closed after so many seconds."""
    rotate_bytes: ClassVar[int] = 64 * MIB
    max_bytes: Size = 4 * GIB
    """The bound for all files. Beyond it the oldest are deleted."""

    @property
    def file_bytes(self) -> int:
        """Return the size at which a file is closed."""
        return min(self.rotate_bytes, self.max_bytes)

    @property
    def memory_bytes(self) -> int:
        return _ARROW_BYTES

    def folders(self) -> Iterator[FilledFolder]:
        yield FilledFolder("trace.path", self.path, "trace.max_bytes", self.max_bytes, self.file_bytes)

    def claims(self, config: Config) -> Iterator[Claim]:
        yield written(("trace", "path"), self.path)
