"""Filters that count how often they are compared."""

from streamer.uprotocol.uri import UUri


class CountingUri(UUri):
    """Counts how often any of them was compared."""

    compared = 0

    def matches(self, other: UUri) -> bool:
        CountingUri.compared += 1
        return super().matches(other)


def counting(uri: UUri) -> UUri:
    return CountingUri(*uri)
