"""The log line for a Request that one of our services refuses. Refusals by permissions are in the audit log instead."""

import logging

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode, UStatusError

logger = logging.getLogger("ustreamer.services")


def log_refusal(message: UMessage, error: UStatusError) -> None:
    """Log which uEntity requested what, and why the service refused it.

    The authority is the first field: repeated lines of one authority are limited, whatever uEntities it invents.
    """
    if error.code is not UCode.PERMISSION_DENIED:
        attributes = message.attributes
        source, sink = attributes.source, attributes.sink
        text = "request_refused authority=%s source=%s sink=%s code=%s reason=%s"
        logger.warning(text, source.authority, source, sink, error.code.name, error.message)
