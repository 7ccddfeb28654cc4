"""The record of the black box: two commands. The daemon has no part in it; its tap and its events are what is recorded."""

from streamer.features.record import Feature


class BlackBoxFeature(Feature):
    """Brings ``streamer record`` and ``streamer replay``."""

    COMMANDS = "streamer.features.black_box.command_record", "streamer.features.black_box.command_replay"
