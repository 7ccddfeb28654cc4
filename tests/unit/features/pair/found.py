"""What a test looks at of the pair of a streamer that is one of two."""

from collections.abc import Iterable

from streamer.features.pair.feature import PairFeature
from streamer.features.pair.paired import Paired
from streamer.features.record import Feature
from tests.hosted import one_of


def pair_of(features: Iterable[Feature]) -> Paired:
    paired = one_of(features, PairFeature).paired
    assert paired is not None
    return paired
