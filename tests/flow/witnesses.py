"""The one list of the observers that features bring to the router of the flow tests."""

from tests.flow.ledger import Witness
from tests.unit.features.tap.witness import TapWitness
from tests.unit.features.traces.witness import TraceWitness

WITNESSES: tuple[type[Witness], ...] = (  # a line each, which `make without` takes out
    TapWitness,
    TraceWitness,
)
