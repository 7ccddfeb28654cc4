"""The one list of features.

To take one out: delete its folder, its lines here, and its folder of tests.
"""

from pathlib import Path

from streamer.clock import Clock
from streamer.config.load import load, load_text
from streamer.config.models import Config, with_sections
from streamer.features.black_box.feature import BlackBoxFeature
from streamer.features.budget.feature import BudgetFeature
from streamer.features.check.feature import CheckFeature
from streamer.features.host.status import StatusConfig
from streamer.features.judge.feature import JudgeFeature
from streamer.features.live_audit.feature import LiveAuditFeature
from streamer.features.multicast.feature import MulticastFeature
from streamer.features.otel.feature import OtelFeature
from streamer.features.pair.feature import PairFeature
from streamer.features.pause.feature import PauseFeature
from streamer.features.probation.feature import ProbationFeature
from streamer.features.record import Feature, first
from streamer.features.tap.feature import TapFeature
from streamer.features.traces.feature import TracesFeature
from streamer.features.usubscription.feature import UsubscriptionFeature
from streamer.features.utwin.feature import UtwinFeature

FEATURES: tuple[type[Feature], ...] = (
    PairFeature,
    CheckFeature,
    BlackBoxFeature,
    JudgeFeature,
    ProbationFeature,
    TracesFeature,
    OtelFeature,
    TapFeature,
    LiveAuditFeature,
    PauseFeature,
    BudgetFeature,
    MulticastFeature,
    UsubscriptionFeature,
    UtwinFeature,
)

FILE = with_sections({"status": StatusConfig} | {key: section for kind in FEATURES for key, section in kind.KEYS.items()})
"""The class of configuration files: with the sections of all features."""


def built(config: Config, clock: Clock) -> list[Feature]:
    """Build the features of one streamer."""
    return [kind(config, clock) for kind in FEATURES]


def load_in_use(path: Path, at_start: bool, kind: type[Config] = FILE) -> Config:
    """Load the configuration file, or what a feature has in place of its present text. Raises `ConfigError`."""
    config = load(path, may_wait=at_start, kind=kind)
    text = first(feature.in_place_of(config, at_start) for feature in FEATURES)
    return config if text is None else load_text(text, path, kind=kind)
