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
    DataType,
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


def _field(name: str, type_: DataType, meaning: str, nullable: bool = True) -> StructField:
    return StructField(name, type_, nullable, {"comment": meaning})


TRACE = StructType(
    [
        _field("ts", TimestampType(), "when the streamer received the message, µs, UTC", nullable=False),
        _field("msg_ts", TimestampType(), "when the message was made, from its UUIDv7, ms, UTC; null if the id is not one"),
        _field("seq", LongType(), "number of the record in this run of the streamer, from 0; a gap is a lost record", False),
        _field("run_ts", TimestampType(), "when this run of the streamer began, µs, UTC: tells its runs apart", False),
        _field("msg_id", BinaryType(), "UUIDv7, 16 bytes", False),
        _field("req_id", BinaryType(), "id of the Request that a Response answers, 16 bytes"),
        _field(
            "route",
            StringType(),
            "the route; none, core/NAME, dead-letter/NAME and rpc-error/NAME are the streamer's own",
            False,
        ),
        _field("src_authority", StringType(), "authority of the source", False),
        _field("src_ue_id", LongType(), "uEntity id of the source, with its instance in the upper 16 bits", False),
        _field("src_ue_version", IntegerType(), "major version of the source", False),
        _field("src_resource_id", IntegerType(), "resource of the source; the topic of a Publish", False),
        _field(
            "sink_authority",
            StringType(),
            "authority of the sink, as sent; a Publish has none, or an address",
        ),
        _field("sink_ue_id", LongType(), "uEntity id of the sink"),
        _field("sink_ue_version", IntegerType(), "major version of the sink"),
        _field("sink_resource_id", IntegerType(), "resource of the sink; the method of a Request"),
        _field("msg_type", StringType(), "publish, notification, request, response; unspecified if it had none", False),
        _field("priority", StringType(), "CS0 to CS6; a message without a class has CS1", False),
        _field("payload_bytes", LongType(), "length of the payload", False),
        _field("ingress", StringType(), "endpoint through which it came; null for what the streamer made itself"),
        _field("egress", StringType(), "endpoint to which it was to go; null if there was none"),
        _field("ingress_transport", StringType(), "kind of the ingress: mqtt5, zenoh"),
        _field("egress_transport", StringType(), "kind of the egress"),
        _field("ttl_ms", LongType(), "time to live; null or 0 if it never expires"),
        _field("age_us", LongType(), "ts minus msg_ts: negative if the sender's clock is ahead"),
        _field("queue_wait_us", LongType(), "from ingress to when it last left for the transport; null if it never left"),
        _field(
            "latency_us",
            LongType(),
            "from ingress to confirmation (over Zenoh: until it left), or to the outcome if it was not delivered",
        ),
        _field("retries", IntegerType(), "how often the destination refused it", False),
        _field("outcome", StringType(), "what became of it, one of the outcomes", False),
        _field("ucode", StringType(), "UCode of the reason: OK if it was delivered", False),
        _field(
            "redelivered",
            BooleanType(),
            "it was queued anew: after a lost link, a sign of a loss, a restart, a redrive, or for a late subscriber",
            False,
        ),
        _field("traceparent", StringType(), "W3C trace context, as it came"),
        _field("version", StringType(), "the streamer's own version"),
        _field("compiled", BooleanType(), "whether the streamer was compiled, or pure Python"),
        _field("config", StringType(), "fingerprint of its configuration, without what tells single gateways apart"),
    ]
)

PARTITIONED = StructType(
    [
        *TRACE.fields,
        _field("date", DateType(), "UTC date of ts"),
        _field("hour", IntegerType(), "UTC hour of ts"),
        _field("streamer", StringType(), "authority of the streamer that wrote the record"),
    ]
)
"""`TRACE` with its partition columns: what a job reads."""

EVENT = StructType(
    [
        _field("ts", TimestampType(), "when it happened, µs, UTC", nullable=False),
        _field("seq", LongType(), "number of the event in this run of the streamer, from 0", nullable=False),
        _field("run_ts", TimestampType(), "when this run of the streamer began, µs, UTC: as in its records", nullable=False),
        _field("event", StringType(), "started, stopped, configured, up, down", nullable=False),
        _field("endpoint", StringType(), "whose link is up or down; null for events of the whole streamer"),
        _field("transport", StringType(), "kind of the endpoint: mqtt5, zenoh"),
        _field("reason", StringType(), "why a link is down, as in the log, cut to 200 characters"),
        _field("version", StringType(), "the streamer's own version"),
        _field("compiled", BooleanType(), "whether the streamer was compiled, or pure Python"),
        _field("config", StringType(), "fingerprint of its configuration, as in its records"),
    ]
)
"""What happened to a streamer and its links, in files beside those of the records: ``_events/date=…/streamer=…``."""

PARTITIONED_EVENT = StructType(
    [
        *EVENT.fields,
        _field("date", DateType(), "UTC date of ts"),
        _field("streamer", StringType(), "authority of the streamer that wrote the event"),
    ]
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
