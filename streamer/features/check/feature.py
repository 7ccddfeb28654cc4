"""The record of ``check``: a command that reports every problem of a configuration file, and of its machine."""

from streamer.features.record import Commands, Feature


class CheckFeature(Feature):
    """The command ``check``."""

    @staticmethod
    def add_commands(commands: Commands) -> None:
        from streamer.features.check.command import add_to  # noqa: PLC0415

        add_to(commands)
