"""The sections of the configuration for the journal and its dead letters."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from streamer.config.types import GIB, MIB, Count, FilePath, Section, Size

_LETTERS_SHARE = 4  # dead letters take at most this part of the journal


class JournalConfig(Section):
    """Where messages without an outcome are kept, so that they survive a crash."""

    path: FilePath
    """A SQLite file, on a disk that survives a restart."""
    max_bytes: Size = GIB
    """The bound for messages and dead letters together. The file and its write-ahead log may be somewhat larger."""
    memory: Size = 64 * MIB
    """Payloads of journaled messages that are also kept in memory. Beyond that they are only in the journal."""

    @property
    def disk_bytes(self) -> int:
        """Return the disk space that a full journal needs, including its log. With less, a full journal stays full."""
        return 2 * self.max_bytes + 32 * MIB

    @property
    def default_pair(self) -> Path:
        """Return the path of the notes of a pair."""
        return self._beside("pair.json")

    @property
    def default_token(self) -> Path:
        """Return the path of the token file that the streamer makes, unless `control.http_token_file` names one."""
        return self._beside("token")

    def _beside(self, name: str) -> Path:
        return self.path.with_name(f"{self.path.stem}-{name}")


REJECTED_MESSAGES, REJECTED_BYTES = 5000, 16 * MIB
"""How many dead letters of messages that were never accepted the journal keeps: anybody can cause them."""


class DeadLetterStoreConfig(Section):
    """How many dead letters the journal keeps for ``streamer dead-letters``. The oldest are deleted first."""

    messages: Count = 10_000
    """In number."""
    bytes: Size = 64 * MIB
    """In bytes; at most a quarter of the journal."""
    rejected: ClassVar[Mapping[str, int]] = {"messages": REJECTED_MESSAGES, "bytes": REJECTED_BYTES}

    def bounds(self, journal_bytes: int) -> tuple[int, int, int, int]:
        """Return the bounds in a journal of this size: messages and bytes; messages and bytes of never accepted ones."""
        share = journal_bytes // _LETTERS_SHARE
        return self.messages, min(self.bytes, share), REJECTED_MESSAGES, min(REJECTED_BYTES, share // 4)
