"""The record of judging: pages and commands that tell what this or another configuration does with a message."""

from streamer.features.record import Feature, Pages, RunningStreamer


class JudgeFeature(Feature):
    """The pages for flows, explanations, and changes of the configuration, and the commands that ask the same of files."""

    COMMANDS = tuple(f"streamer.features.judge.command_{name}" for name in ("test", "diff", "explain"))

    def pages(self, running: RunningStreamer) -> Pages:
        from streamer.features.judge.page_config import ConfigPages  # noqa: PLC0415
        from streamer.features.judge.page_explain import ExplainPages  # noqa: PLC0415
        from streamer.features.judge.page_flows import FlowPages  # noqa: PLC0415
        from streamer.features.judge.page_known_flows import KnownFlowPages  # noqa: PLC0415

        kinds = FlowPages(running), KnownFlowPages(running), ExplainPages(running), ConfigPages(running)
        return [route for kind in kinds for route in kind.routes()]
