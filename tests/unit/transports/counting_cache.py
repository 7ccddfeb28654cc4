"""A cache that tells what it has learned, and when: what is learned once is looked up from then on."""

from streamer.uprotocol.cache import Cache, K, V


class CountingCache(Cache[K, V]):
    """``learned``: the keys of every `remember`, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.learned: list[K] = []

    def remember(self, key: K, value: V) -> None:
        self.learned.append(key)
        super().remember(key, value)
