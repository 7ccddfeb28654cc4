"""What a subscription of Zenoh hands to the loop, in the order in which it does."""

from typing import Any

from streamer.transports.zenoh.subscription import KeySubscription


class Deliveries:
    """Takes the batches of one subscription. Nothing may come after its end."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.ended = 0

    def take(self, subscription: KeySubscription, samples: Any) -> None:
        assert not self.ended
        self.batches.append(list(samples))

    def end(self, subscription: KeySubscription) -> None:
        self.ended += 1

    @property
    def samples(self) -> list[Any]:
        return [sample for batch in self.batches for sample in batch]
