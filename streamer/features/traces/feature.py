"""The record of routing traces: a command that searches them."""

from streamer.features.record import Commands, Feature


class TracesFeature(Feature):
    """The command that reads traces."""

    @staticmethod
    def add_commands(commands: Commands) -> None:
        from streamer.features.traces.command import add_to  # noqa: PLC0415

        add_to(commands)
