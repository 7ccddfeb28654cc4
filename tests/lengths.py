"""How much the tests under load send: a few seconds' worth, or with ``LONG=1`` what they were made for."""

import os

IS_LONG = os.environ.get("LONG") == "1"


def at_length(long: int, short: int) -> int:
    """A count or a number of seconds; both are enough to reach every bound."""
    return long if IS_LONG else short
