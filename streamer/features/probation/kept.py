"""The file beside the journal with the configuration that worked, while another is on probation or was refused.

It is on disk before the other one is used, and removed once that is confirmed: whatever ends the process, a start finds it.
"""

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import NamedTuple

from streamer.config.models import Config
from streamer.files import open_regular, read_file
from streamer.journal.damage import sync

logger = logging.getLogger("ustreamer.probation")


class KeptConfig(NamedTuple):
    """What worked. ``digest``: of the other text, on probation until ``at_ms``, or refused then for the reason ``why``."""

    text: str
    digest: str
    at_ms: int
    why: str = ""


def digest_of(text: str) -> str:
    """Return the SHA-256 of a configuration's text in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _file(config: Config) -> Path:
    if config.journal is None:
        raise FileNotFoundError(0, "journal: null: there is no folder for it")
    return config.journal.path.with_name(f"{config.journal.path.stem}-probation.json")


def read(config: Config, is_told: bool = True) -> KeptConfig | None:
    """Return what is kept; None: nothing that can be used. ``is_told``: log why; before a start, there is no log."""
    try:
        return KeptConfig(**json.loads(read_file(_file(config))))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as exc:
        if is_told:
            logger.error("probation_unreadable file=%s reason=%s", _file(config), exc)
        return None


def write(config: Config, kept: KeptConfig | None) -> None:
    """Replace or remove the file; that is on disk when this returns. Raises OSError."""
    file = _file(config)
    new = file.with_name(f"{file.name}.new")
    for old in (new, file) if kept is None else (new,):
        old.unlink(missing_ok=True)
    if kept is not None:
        with os.fdopen(open_regular(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w", encoding="utf-8") as written:
            json.dump(kept._asdict(), written)
            written.flush()
            os.fsync(written.fileno())
        new.replace(file)
    sync(file.parent)
