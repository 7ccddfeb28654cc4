"""The token that changes over HTTP may need (`control.http_token_file`)."""

from pathlib import Path

SHORTEST_TOKEN = 16


def read_token(path: Path) -> bytes:
    """The token in a file. Raises OSError, and ValueError if it is too short or no header can hold it."""
    token = path.read_bytes().strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.decode("ascii").isprintable():
        raise ValueError(f"expected at least {SHORTEST_TOKEN} printable ASCII characters")
    return token
