"""The record of the black box: two commands. The daemon has no part in it; its tap and its events are what is recorded."""

from streamer.features.record import Commands, Feature


class BlackBoxFeature(Feature):
    """Brings ``streamer record`` and ``streamer replay``."""

    @staticmethod
    def add_commands(commands: Commands) -> None:
        from streamer.features.black_box import command_record, command_replay  # noqa: PLC0415

        command_record.add_to(commands)
        command_replay.add_to(commands)
