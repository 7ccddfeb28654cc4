"""How many examples property tests draw, by HYPOTHESIS_PROFILE: `quick` (the default), `full` (`make test-all`)"""

from hypothesis import settings

_FULL = 100
_FEWEST = 5


def examples(full: int) -> int:
    """The number for a test that draws ``full`` examples with the profile `full`, in proportion."""
    return max(_FEWEST, full * settings().max_examples // _FULL)
