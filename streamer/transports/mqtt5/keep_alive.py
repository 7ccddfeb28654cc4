"""The timer of a connection: sends pings while the connection is idle, and ends it if the broker does not answer."""

from collections.abc import Callable

import mqtt5

from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.session import Session

MIN_PING_ANSWER_S = 5.0
FAREWELL_S = 2.0
_TICK_S = 1.0


class KeepAlive:
    """Watches one connection from its CONNECT on. The broker may replace ``keep_alive_s``; 0: no pings.

    ``continues_unanswered`` is called when a SUBSCRIBE or UNSUBSCRIBE was not answered in time, and returns whether the
    connection continues without the answer.
    """

    def __init__(
        self,
        connection: Connection,
        session: Session,
        options: Mqtt5Options,
        continues_unanswered: Callable[[], bool],
        now_s: float,
    ) -> None:
        self._continues_unanswered = continues_unanswered
        self.keep_alive_s = options.keep_alive_s
        self._connection = connection
        self._session = session
        self._options = options
        self._deadline_s = now_s + options.connect_timeout_s
        self._ping_sent_s: float | None = None
        self._head: object = None
        self._head_since_s = now_s
        self._asked_s: float | None = None  # when a ping was sent because `_head` was unconfirmed for long
        self._oldest_unacknowledged: object = None  # the oldest unacknowledged message at the last check
        self._request: object = None
        self._request_since_s = now_s

    @property
    def tick_s(self) -> float:
        """The seconds between two calls of `check`."""
        options = self._options
        tick_s = min(_TICK_S, options.ack_timeout_s / 4, options.connect_timeout_s / 4)
        return min(tick_s, self.keep_alive_s / 4 or tick_s)

    def check(self, now_s: float) -> None:
        """End the connection if an answer is late; send a PINGREQ if one is due."""
        connection, options = self._connection, self._options
        if not connection.is_open:
            if now_s - connection.last_write_s > FAREWELL_S:
                connection.abort("the DISCONNECT was not read")
        elif not self._session.is_connected and now_s > self._deadline_s:
            connection.abort(f"no CONNACK within {options.connect_timeout_s:g} s")
        elif self._is_unanswered(now_s) and not self._continues_unanswered():
            connection.abort(f"no SUBACK or UNSUBACK within {options.connect_timeout_s:g} s")
        elif self._is_stuck(now_s):
            self._session.has_timed_out = True
            self._session.is_alive = self._asked_s is not None and connection.last_read_s >= self._asked_s
            connection.abort(f"no PUBACK within {options.ack_timeout_s:g} s")
        else:
            self._ping(now_s)

    def _is_unanswered(self, now_s: float) -> bool:
        """Return whether the oldest SUBSCRIBE or UNSUBSCRIBE is unanswered for too long, while we read answers."""
        oldest, connection = self._session.oldest_request, self._connection
        if oldest is not self._request or not connection.is_reading or connection.is_skipping:
            self._request, self._request_since_s = oldest, now_s
        return oldest is not None and now_s - self._request_since_s > self._options.connect_timeout_s

    def _is_stuck(self, now_s: float) -> bool:
        """Return whether the oldest unconfirmed message is the same for too long. Send a ping at half of that time.

        The time does not count while a received message has been unacknowledged for more than a tick: rumqttd confirms
        nothing while 100 are. That is our delay and not a dead link, which would fail the ping. Nor does it count while a
        packet that is too large passes: the PUBACK comes after it, and after a reconnect the packet would come again.
        """
        head, unacknowledged = self._session.head, self._session.unacknowledged
        oldest = unacknowledged[0] if unacknowledged else None
        is_late = (oldest is not None and oldest is self._oldest_unacknowledged) or self._connection.is_skipping
        if head is not self._head or is_late:
            self._head, self._head_since_s, self._asked_s = head, now_s, None
        self._oldest_unacknowledged = oldest
        waited_s, most_s = now_s - self._head_since_s, self._options.ack_timeout_s
        if head is not None and self._asked_s is None and waited_s > most_s / 2:
            self._asked_s = now_s
            self._connection.write(mqtt5.PingReqPacket().write())
        return head is not None and waited_s > most_s

    def _ping(self, now_s: float) -> None:
        connection = self._connection
        if not connection.is_reading:
            # The answers wait behind packets that we do not read. The broker needs pings all the same (MQTT-3.1.2-20), or
            # it ends the connection although we only wait for room.
            self._ping_sent_s = None
            if self._is_time_to_ping(now_s - connection.last_write_s):
                connection.write(mqtt5.PingReqPacket().write())
            return
        if self._ping_sent_s is not None:
            if connection.last_read_s >= self._ping_sent_s:
                self._ping_sent_s = None
            elif now_s - self._ping_sent_s > max(MIN_PING_ANSWER_S, self.keep_alive_s / 2):
                connection.abort("no answer to PINGREQ")
            return
        if self._is_time_to_ping(now_s - min(connection.last_read_s, connection.last_write_s)):
            self._ping_sent_s = now_s
            connection.write(mqtt5.PingReqPacket().write())

    def _is_time_to_ping(self, idle_s: float) -> bool:
        return bool(self.keep_alive_s) and self._session.is_connected and idle_s >= self.keep_alive_s / 2
