"""What a test looks at of the uTwin of a streamer that has one."""

from collections.abc import Iterable

from streamer.features.record import Feature
from streamer.features.utwin.feature import UtwinFeature
from streamer.features.utwin.last_values import LastValues
from streamer.features.utwin.service import UTwin
from tests.hosted import one_of


def utwin_of(features: Iterable[Feature]) -> UTwin:
    service = one_of(features, UtwinFeature).service
    assert service is not None
    return service


def last_values_of(features: Iterable[Feature]) -> LastValues:
    values = one_of(features, UtwinFeature).last_values
    assert values is not None
    return values
