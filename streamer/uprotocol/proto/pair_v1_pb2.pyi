from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("heartbeat", "hello", "batch", "stored", "settled", "report", "offer", "taken", "state", "state_stored", "interest")
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_STORED_FIELD_NUMBER: _ClassVar[int]
    INTEREST_FIELD_NUMBER: _ClassVar[int]
    heartbeat: Heartbeat
    hello: Hello
    batch: Batch
    stored: Stored
    settled: Settled
    report: Report
    offer: Offer
    taken: Taken
    state: State
    state_stored: StateStored
    interest: Interest
    def __init__(self, heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., stored: _Optional[_Union[Stored, _Mapping]] = ..., settled: _Optional[_Union[Settled, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., taken: _Optional[_Union[Taken, _Mapping]] = ..., state: _Optional[_Union[State, _Mapping]] = ..., state_stored: _Optional[_Union[StateStored, _Mapping]] = ..., interest: _Optional[_Union[Interest, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("name", "run", "number", "epoch", "is_active", "heard_run", "heard_number", "yields", "relies_s", "has_epoch", "has_position")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    HEARD_RUN_FIELD_NUMBER: _ClassVar[int]
    HEARD_NUMBER_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    RELIES_S_FIELD_NUMBER: _ClassVar[int]
    HAS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HAS_POSITION_FIELD_NUMBER: _ClassVar[int]
    name: str
    run: int
    number: int
    epoch: int
    is_active: bool
    heard_run: int
    heard_number: int
    yields: bool
    relies_s: float
    has_epoch: int
    has_position: int
    def __init__(self, name: _Optional[str] = ..., run: _Optional[int] = ..., number: _Optional[int] = ..., epoch: _Optional[int] = ..., is_active: _Optional[bool] = ..., heard_run: _Optional[int] = ..., heard_number: _Optional[int] = ..., yields: _Optional[bool] = ..., relies_s: _Optional[float] = ..., has_epoch: _Optional[int] = ..., has_position: _Optional[int] = ...) -> None: ...

class Aside(_message.Message):
    __slots__ = ("heartbeat", "seen_run", "seen_number")
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SEEN_RUN_FIELD_NUMBER: _ClassVar[int]
    SEEN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    heartbeat: Heartbeat
    seen_run: int
    seen_number: int
    def __init__(self, heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., seen_run: _Optional[int] = ..., seen_number: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("disk", "config", "is_active", "version", "claim", "sessions")
    class SessionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    DISK_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    disk: str
    config: str
    is_active: bool
    version: str
    claim: Claim
    sessions: _containers.ScalarMap[str, bytes]
    def __init__(self, disk: _Optional[str] = ..., config: _Optional[str] = ..., is_active: _Optional[bool] = ..., version: _Optional[str] = ..., claim: _Optional[_Union[Claim, _Mapping]] = ..., sessions: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("disk", "run", "seen", "has", "epoch")
    DISK_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    HAS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    disk: str
    run: str
    seen: int
    has: int
    epoch: int
    def __init__(self, disk: _Optional[str] = ..., run: _Optional[str] = ..., seen: _Optional[int] = ..., has: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("disk", "run", "epoch", "proves_below", "claim", "top")
    DISK_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROVES_BELOW_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    disk: str
    run: str
    epoch: int
    proves_below: int
    claim: Claim
    top: int
    def __init__(self, disk: _Optional[str] = ..., run: _Optional[str] = ..., epoch: _Optional[int] = ..., proves_below: _Optional[int] = ..., claim: _Optional[_Union[Claim, _Mapping]] = ..., top: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("number", "is_snapshot_begin", "is_snapshot_end", "rows", "segments", "letters", "rows_done", "segments_done", "letters_done", "letters_unmarked", "letters_marked", "position", "is_complete", "origin")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IS_SNAPSHOT_BEGIN_FIELD_NUMBER: _ClassVar[int]
    IS_SNAPSHOT_END_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    ROWS_DONE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_DONE_FIELD_NUMBER: _ClassVar[int]
    LETTERS_DONE_FIELD_NUMBER: _ClassVar[int]
    LETTERS_UNMARKED_FIELD_NUMBER: _ClassVar[int]
    LETTERS_MARKED_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    number: int
    is_snapshot_begin: bool
    is_snapshot_end: bool
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    letters: _containers.RepeatedCompositeFieldContainer[Letter]
    rows_done: _containers.RepeatedScalarFieldContainer[int]
    segments_done: _containers.RepeatedScalarFieldContainer[int]
    letters_done: _containers.RepeatedScalarFieldContainer[int]
    letters_unmarked: _containers.RepeatedScalarFieldContainer[int]
    letters_marked: _containers.RepeatedCompositeFieldContainer[Mark]
    position: int
    is_complete: bool
    origin: Origin
    def __init__(self, number: _Optional[int] = ..., is_snapshot_begin: _Optional[bool] = ..., is_snapshot_end: _Optional[bool] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., letters: _Optional[_Iterable[_Union[Letter, _Mapping]]] = ..., rows_done: _Optional[_Iterable[int]] = ..., segments_done: _Optional[_Iterable[int]] = ..., letters_done: _Optional[_Iterable[int]] = ..., letters_unmarked: _Optional[_Iterable[int]] = ..., letters_marked: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ..., position: _Optional[int] = ..., is_complete: _Optional[bool] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("number", "redrive_ms", "ttl_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REDRIVE_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    redrive_ms: int
    ttl_ms: int
    def __init__(self, number: _Optional[int] = ..., redrive_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("number", "route", "source", "target", "entered_ms", "attempts", "outgoing", "body")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ENTERED_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    OUTGOING_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    number: int
    route: str
    source: str
    target: str
    entered_ms: int
    attempts: int
    outgoing: str
    body: bytes
    def __init__(self, number: _Optional[int] = ..., route: _Optional[str] = ..., source: _Optional[str] = ..., target: _Optional[str] = ..., entered_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., outgoing: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("number", "target", "body")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    number: int
    target: str
    body: bytes
    def __init__(self, number: _Optional[int] = ..., target: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class Letter(_message.Message):
    __slots__ = ("number", "id", "route", "ingress", "target", "outcome", "code", "text", "attempts", "first_ms", "last_ms", "type", "source", "sink", "body")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    INGRESS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    number: int
    id: bytes
    route: str
    ingress: str
    target: str
    outcome: str
    code: int
    text: str
    attempts: int
    first_ms: int
    last_ms: int
    type: int
    source: str
    sink: str
    body: bytes
    def __init__(self, number: _Optional[int] = ..., id: _Optional[bytes] = ..., route: _Optional[str] = ..., ingress: _Optional[str] = ..., target: _Optional[str] = ..., outcome: _Optional[str] = ..., code: _Optional[int] = ..., text: _Optional[str] = ..., attempts: _Optional[int] = ..., first_ms: _Optional[int] = ..., last_ms: _Optional[int] = ..., type: _Optional[int] = ..., source: _Optional[str] = ..., sink: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class Stored(_message.Message):
    __slots__ = ("number", "granted")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    number: int
    granted: Claim
    def __init__(self, number: _Optional[int] = ..., granted: _Optional[_Union[Claim, _Mapping]] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("flows",)
    class Flow(_message.Message):
        __slots__ = ("tail", "ids", "counts_as_seen")
        TAIL_FIELD_NUMBER: _ClassVar[int]
        IDS_FIELD_NUMBER: _ClassVar[int]
        COUNTS_AS_SEEN_FIELD_NUMBER: _ClassVar[int]
        tail: bytes
        ids: bytes
        counts_as_seen: bool
        def __init__(self, tail: _Optional[bytes] = ..., ids: _Optional[bytes] = ..., counts_as_seen: _Optional[bool] = ...) -> None: ...
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    flows: _containers.RepeatedCompositeFieldContainer[Settled.Flow]
    def __init__(self, flows: _Optional[_Iterable[_Union[Settled.Flow, _Mapping]]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("reaches", "lost", "is_whole", "problem", "nodes", "unshared", "number", "heard_number", "wall_ms", "has_kept_state", "untried")
    REACHES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    UNSHARED_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HEARD_NUMBER_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    HAS_KEPT_STATE_FIELD_NUMBER: _ClassVar[int]
    UNTRIED_FIELD_NUMBER: _ClassVar[int]
    reaches: _containers.RepeatedScalarFieldContainer[str]
    lost: _containers.RepeatedScalarFieldContainer[str]
    is_whole: bool
    problem: str
    nodes: _containers.RepeatedCompositeFieldContainer[Nodes]
    unshared: str
    number: int
    heard_number: int
    wall_ms: int
    has_kept_state: bool
    untried: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reaches: _Optional[_Iterable[str]] = ..., lost: _Optional[_Iterable[str]] = ..., is_whole: _Optional[bool] = ..., problem: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[Nodes, _Mapping]]] = ..., unshared: _Optional[str] = ..., number: _Optional[int] = ..., heard_number: _Optional[int] = ..., wall_ms: _Optional[int] = ..., has_kept_state: _Optional[bool] = ..., untried: _Optional[_Iterable[str]] = ...) -> None: ...

class Nodes(_message.Message):
    __slots__ = ("endpoint", "ids", "count")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    count: int
    def __init__(self, endpoint: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., count: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("messages",)
    class Message(_message.Message):
        __slots__ = ("token", "source", "body")
        TOKEN_FIELD_NUMBER: _ClassVar[int]
        SOURCE_FIELD_NUMBER: _ClassVar[int]
        BODY_FIELD_NUMBER: _ClassVar[int]
        token: int
        source: str
        body: bytes
        def __init__(self, token: _Optional[int] = ..., source: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Offer.Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Offer.Message, _Mapping]]] = ...) -> None: ...

class Taken(_message.Message):
    __slots__ = ("tokens", "refused")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    refused: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., refused: _Optional[_Iterable[int]] = ...) -> None: ...

class State(_message.Message):
    __slots__ = ("number", "is_first", "is_last", "statements", "lineage")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IS_FIRST_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    STATEMENTS_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    number: int
    is_first: bool
    is_last: bool
    statements: _containers.RepeatedCompositeFieldContainer[Statement]
    lineage: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, number: _Optional[int] = ..., is_first: _Optional[bool] = ..., is_last: _Optional[bool] = ..., statements: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., lineage: _Optional[_Iterable[str]] = ...) -> None: ...

class Statement(_message.Message):
    __slots__ = ("sql", "parameters")
    SQL_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    sql: str
    parameters: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, sql: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("integer", "text", "blob", "real")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    integer: int
    text: str
    blob: bytes
    real: float
    def __init__(self, integer: _Optional[int] = ..., text: _Optional[str] = ..., blob: _Optional[bytes] = ..., real: _Optional[float] = ...) -> None: ...

class StateStored(_message.Message):
    __slots__ = ("number", "problem")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    number: int
    problem: str
    def __init__(self, number: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class Interest(_message.Message):
    __slots__ = ("is_first", "topics")
    class Topic(_message.Message):
        __slots__ = ("topic", "authorities")
        class AuthoritiesEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
        topic: str
        authorities: _containers.ScalarMap[str, int]
        def __init__(self, topic: _Optional[str] = ..., authorities: _Optional[_Mapping[str, int]] = ...) -> None: ...
    IS_FIRST_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    is_first: bool
    topics: _containers.RepeatedCompositeFieldContainer[Interest.Topic]
    def __init__(self, is_first: _Optional[bool] = ..., topics: _Optional[_Iterable[_Union[Interest.Topic, _Mapping]]] = ...) -> None: ...
