"""The log line for a Request that one of our services refuses. Refusals by permissions are in the audit log instead."""

import logging

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode, UStatusError

logger = logging.getLogger("ustreamer.services")


def log_refusal(message: UMessage, error: UStatusError) -> None:
    """Say who asked for what, and why it was refused.

    The authority comes first: of one authority the lines are limited like all that repeat, whatever uEntities it invents.
    """
    if error.code is not UCode.PERMISSION_DENIED:
        attributes = message.attributes
        source, sink = attributes.source, attributes.sink
        text = "request_refused authority=%s source=%s sink=%s code=%s reason=%s"
        logger.warning(text, source.authority, source, sink, error.code.name, error.message)
