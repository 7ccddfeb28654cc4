"""What a configuration file alone says about routing, without a daemon's state: for `streamer test` and `diff`."""

from streamer.config.models import Config
from streamer.routing.interest import Interest
from streamer.routing.judge import Known
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import RoutingTable
from streamer.services.host import entities


def table_of(config: Config) -> RoutingTable:
    """Return the routing table that a daemon with this configuration would have."""
    return RoutingTable.from_config(config, config.addressed, entities(config), config.catalogue.topics)


def known_by_file(config: Config) -> Known:
    """Return what is known without any subscription or pause rule."""
    return Known(table_of(config), Interest(), PauseRules())
