"""Whether the streamer is ready, and what is known of its endpoints' links: as JSON and as sentences.

The sentences change only with what they tell: the time of the next attempt is not in them.
"""

from typing import Any

from streamer.delivery.router import Router
from streamer.delivery.stats import EndpointAccount
from streamer.journal.journal import JournalState
from streamer.journal.moments import as_moment
from streamer.transports.base import LinkError, LinkState, LinkStatus


def unready(router: Router) -> list[str]:
    """Return why the streamer is not ready; empty if it is. A Zenoh peer without another peer is ready."""
    if (why := router.standby()) is not None:
        return [f"on standby: {why}"] if why else []
    reasons = ["draining"] if router.is_draining else []
    for account in router.endpoint_accounts():
        if account.link.state is LinkState.DOWN:
            reasons.append(f"{_named(account)} {why_not_up(account.link)}")
        reasons += [f"{_named(account)}: {problem}" for problem in account.problems]
    journal = router.journal
    if journal is not None and journal.state is not JournalState.OK:
        reasons.append(f"journal: {journal.problem or journal.state.value}")
    if progress := router.recovery_progress:
        reasons.append(progress)
    return reasons


def alone(router: Router) -> list[str]:
    """Return a sentence for each endpoint without another node. That does not make the streamer unready."""
    return [
        f"{_named(account)} {why_not_up(account.link)}"
        for account in router.endpoint_accounts()
        if account.link.state is LinkState.ALONE
    ]


def summary(router: Router) -> str:
    """Return the state of the streamer in one line."""
    found = unready(router) + alone(router)
    if router.standby() == "":
        found.insert(0, "on standby, with a copy of everything")
    return "; ".join(found) or "all endpoints connected"


def why_not_up(link: LinkStatus) -> str:
    """Return since when a link is not up and why, to follow the endpoint's name."""
    text = "is not connected" if link.state is LinkState.DOWN else "is alone: no other node is connected to it"
    text = f"{text} since {as_moment(link.since_ms)}"
    return f"{text}: {'; now '.join(causes)}" if (causes := causes_of(link)) else text


def causes_of(link: LinkStatus) -> list[str]:
    """Return why a link is not up: the first failure, and the latest one if that is another."""
    if link.first_error is None:
        return []
    return list(dict.fromkeys(map(str, filter(None, (link.first_error, link.last_error)))))


def link_of(link: LinkStatus) -> dict[str, Any]:
    """Return what is known of an endpoint's link, as JSON."""
    return {
        "state": link.state.value,
        "since": as_moment(link.since_ms),
        "why": None if link.state is LinkState.UP else why_not_up(link),
        "addresses": list(link.addresses),
        "connected_to": list(link.connected_to),
        "first_error": _error(link.first_error),
        "last_error": _error(link.last_error),
        "next_attempt": None if link.next_attempt_ms is None else as_moment(link.next_attempt_ms),
    }


def _named(account: EndpointAccount) -> str:
    return f"endpoint {account.name} ({account.transport})"


def _error(error: LinkError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"reason": error.reason.value, "text": error.text, "address": error.address, "when": as_moment(error.at_ms)}
