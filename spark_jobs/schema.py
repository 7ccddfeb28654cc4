"""The trace record: the one definition of what the daemon writes and the jobs read.

One record is one outcome at one streamer: a message with two destinations has two, a message with none has one.
Records never change once they are written. Files have the version in their metadata, under `VERSION_KEY`, and from
version 2 on at the end of their names (``part-….v2.parquet``). Columns are only ever added, at the end; a column that
an older file lacks is read as null. That does not change the version: it goes up if jobs of an earlier version would
misread the records.
"""

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

VERSION = 1
VERSION_KEY = "ustreamer.trace.version"

_KINDS = (BinaryType, BooleanType, DateType, IntegerType, LongType, StringType, TimestampType)
_TYPES = {kind().simpleString(): kind() for kind in _KINDS}


def _field(line: str) -> StructField:
    head, _, meaning = line.partition(": ")
    name, kind = head.rstrip("!").split()
    return StructField(name, _TYPES[kind], not head.endswith("!"), {"comment": meaning})


def _fields(text: str) -> list[StructField]:
    """Of a line for each column: its name, its type with ``!`` if it is never null, and what it means."""
    return [_field(line) for line in text.strip().splitlines()]


TRACE = StructType(
    _fields("""
ts timestamp!: when the streamer received the message, µs, UTC
msg_ts timestamp: when the message was made, from its UUIDv7, ms, UTC; null if the id is not one
seq bigint!: number of the record in this run of the streamer, from 0; a gap is a lost record
run_ts timestamp!: when this run of the streamer began, µs, UTC: tells its runs apart
msg_id binary!: UUIDv7, 16 bytes
req_id binary: id of the Request that a Response answers, 16 bytes
route string!: the route; none, core/NAME, dead-letter/NAME and rpc-error/NAME are the streamer's own
src_authority string!: authority of the source
src_ue_id bigint!: uEntity id of the source, with its instance in the upper 16 bits
src_ue_version int!: major version of the source
src_resource_id int!: resource of the source; the topic of a Publish
sink_authority string: authority of the sink, as sent; a Publish has none, or an address
sink_ue_id bigint: uEntity id of the sink
sink_ue_version int: major version of the sink
sink_resource_id int: resource of the sink; the method of a Request
msg_type string!: publish, notification, request, response; unspecified if it had none
priority string!: CS0 to CS6; a message without a class has CS1
payload_bytes bigint!: length of the payload
ingress string: endpoint through which it came; null for what the streamer made itself
egress string: endpoint to which it was to go; null if there was none
ingress_transport string: kind of the ingress: mqtt5, zenoh
egress_transport string: kind of the egress
ttl_ms bigint: time to live; null or 0 if it never expires
age_us bigint: ts minus msg_ts: negative if the sender's clock is ahead
queue_wait_us bigint: from ingress to when it last left for the transport; null if it never left
latency_us bigint: from ingress to confirmation (over Zenoh: until it left), or to the outcome if it was not delivered
retries int!: how often the destination refused it
outcome string!: what became of it, one of the outcomes
ucode string!: UCode of the reason: OK if it was delivered
redelivered boolean!: it was queued anew: after a lost link, a sign of a loss, a restart, a redrive, or for a late subscriber
traceparent string: W3C trace context, as it came
version string: the streamer's own version
compiled boolean: whether the streamer was compiled, or pure Python
config string: fingerprint of its configuration, without what tells single gateways apart
""")
)

PARTITIONED = StructType(
    TRACE.fields
    + _fields("""
date date: UTC date of ts
hour int: UTC hour of ts
streamer string: authority of the streamer that wrote the record
""")
)
"""`TRACE` with its partition columns: what a job reads."""

EVENT = StructType(
    _fields("""
ts timestamp!: when it happened, µs, UTC
seq bigint!: number of the event in this run of the streamer, from 0
run_ts timestamp!: when this run of the streamer began, µs, UTC: as in its records
event string!: started, stopped, configured, up, down
endpoint string: whose link is up or down; null for events of the whole streamer
transport string: kind of the endpoint: mqtt5, zenoh
reason string: why a link is down, as in the log, cut to 200 characters
version string: the streamer's own version
compiled boolean: whether the streamer was compiled, or pure Python
config string: fingerprint of its configuration, as in its records
""")
)
"""What happened to a streamer and its links, in files beside those of the records: ``_events/date=…/streamer=…``."""

PARTITIONED_EVENT = StructType(
    EVENT.fields
    + _fields("""
date date: UTC date of ts
streamer string: authority of the streamer that wrote the event
""")
)
"""`EVENT` with its partition columns: what a job reads."""

EVENTS = ("started", "stopped", "configured", "up", "down")
"""All events. A streamer that starts tells of every endpoint that it is down, until it is up."""

OUTCOMES = (
    "delivered",
    "expired",
    "rejected",
    "dead_lettered",
    "duplicate",
    "local",
    "unwanted",
    "unheard",
    "sampled_out",
    "unconfirmed",
    "superseded",
)
"""All outcomes. Delivered: the destination has the message. Expired, rejected and dead_lettered are failures.

Unconfirmed: it was sent while somebody listened, and nothing has confirmed that it arrived, so it is neither.
Duplicate: its id was seen before, so it went no further. Local: its sink lives where it came from. Unwanted: a Publish that
no route forwards. Unheard: a Publish that nobody listens to. Sampled out: a Publish that comes too soon after the last one.
Superseded: a Publish of which only the latest is wanted, and a newer one came before it was sent.
"""

FAILURES = ("expired", "rejected", "dead_lettered")
