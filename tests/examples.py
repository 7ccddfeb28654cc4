"""What property tests draw: how many examples, by HYPOTHESIS_PROFILE, and which characters.

The profiles are `quick` (the default), `full` (`make test-all`) and `thorough`.
"""

from hypothesis import settings
from hypothesis import strategies as st

characters = st.characters(exclude_categories=["Cs"])
"""What UTF-8 can encode. `st.text` draws the same without it, but computes them for a second in every new checkout."""

QUICK = 25
_FULL = 100
_FEWEST = 5


def examples(full: int, most: int = 1_000_000) -> int:
    """The number for a test that draws ``full`` examples with the profile `full`, in proportion; at most ``most``."""
    return min(most, max(_FEWEST, full * settings().max_examples // _FULL))
