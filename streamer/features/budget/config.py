"""The section `budget` of an endpoint."""

from typing import Annotated, Literal

from pydantic import Field

from streamer.config.models import FeatureSection
from streamer.config.permissions import PriorityName
from streamer.config.types import Size


class BudgetConfig(FeatureSection):
    """How many bytes may go over the endpoint's network in a period, sent and received."""

    bytes: Size
    """The budget for one period."""
    per: Literal["day", "week", "month"] = "month"
    """The period, in UTC. A week begins on Monday."""
    from_day: Annotated[int, Field(ge=1, le=31)] = 1
    """The day on which a month begins; in a shorter month its last day."""
    reserve: PriorityName = "CS5"
    """Messages below this priority class are paused, until the next period begins."""
    hold_at: Annotated[float, Field(gt=0, le=100)] = 100
    """The share of the budget, in percent, from which on they are paused."""
