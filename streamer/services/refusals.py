"""The log line for a Request that one of our services refuses. Refusals by permissions are in the audit log instead."""

import logging

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode, UStatusError

logger = logging.getLogger("ustreamer.services")


def log_refusal(message: UMessage, error: UStatusError) -> None:
    """Say who asked for what, and why it was refused. Of one requester the lines are limited like all that repeat."""
    if error.code is not UCode.PERMISSION_DENIED:
        attributes = message.attributes
        text = "request_refused source=%s sink=%s code=%s reason=%s"
        logger.warning(text, attributes.source, attributes.sink, error.code.name, error.message)
