"""The token that HTTP clients need to change something: where its file is, and how the streamer creates it.

A file that the streamer creates has 32 random bytes in hexadecimal, and mode 0600. It is created together with its content,
and never replaces an existing file or link.
"""

import contextlib
import os
import pwd
import secrets
import stat
from pathlib import Path

from streamer.config.models import Config
from streamer.files import open_to_read

SHORTEST_TOKEN = 16
_MADE_BYTES = 32
_LONGEST_FILE = 4096


def token_file(config: Config) -> Path | None:
    """Return `control.http_token_file`, else ``journal-token`` beside ``journal.db``; None: neither is configured."""
    if config.control.http_token_file is not None:
        return config.control.http_token_file
    return made_token_file(config)


def made_token_file(config: Config) -> Path | None:
    """Return the path of the token file that the streamer makes; None: it makes none."""
    if config.control.http_token_file is not None or config.journal is None or config.metrics is None:
        return None
    return config.journal.default_token


def read_token(path: Path, may_wait: bool = True) -> bytes:
    """Return the token in a file. Raises OSError, and ValueError if it is too short or invalid in a header.

    ``may_wait``: also read from a pipe, which may block.
    """
    with path.open("rb") if may_wait else open_to_read(path) as file:
        token = file.read(_LONGEST_FILE + 1).strip()
    if len(token) > _LONGEST_FILE:
        raise ValueError(f"expected a token of at most {_LONGEST_FILE} bytes")
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.decode("ascii").isprintable():
        raise ValueError(f"expected at least {SHORTEST_TOKEN} printable ASCII characters")
    return token


def make_token(path: Path) -> bool:
    """Create the file with a new token; False: a valid file exists already.

    Raises OSError, also if other users may have put it there: a symbolic link, another owner, or a mode that is open to
    others.
    """
    with contextlib.suppress(FileNotFoundError):
        there = path.lstat()
        if not stat.S_ISREG(there.st_mode):
            raise OSError(f"{path}: not a file")
        if there.st_uid not in (0, os.geteuid()) or there.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise OSError(f"{path}: expected a file of ours with mode 0600; delete it for a new one")
        return False
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{secrets.token_hex(_MADE_BYTES)}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        os.link(fresh, path)  # fails if another process has created the file
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True


def who_may_read(path: Path) -> str:
    """Return the users who may read a file that has mode 0600, for an error message."""
    try:
        owner = path.stat().st_uid
    except OSError:  # its folder cannot be read either
        return "root and the user who runs the daemon"
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"uid {owner}"
    return "root" if owner == 0 else f"root and {name}"
