"""The uProtocol SDKs for Rust and Python as the other side: programs (rust/, python/) that are driven by lines of JSON."""

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.independent.message import Plain, Uri, uri_of, uri_text
from tests.independent.zenoh import from_attributes, to_attributes
from tests.interop.programs import BUILD, ROOT, need
from tests.waiting import until

ANYTHING: Uri = ("*", 0xFFFFFFFF, 0xFF, 0xFFFF)
LINE_BYTES = 16 << 20


class RefusedError(Exception):
    """The SDK's operation ended with this UStatus."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Payload(NamedTuple):
    data: bytes
    format: int


class Last(NamedTuple):
    """What uTwin knows of one topic: a status code, and its last message."""

    topic: Uri
    code: int
    payload: bytes | None
    message: Plain | None


class Peer:
    """One uEntity. ``heard`` has what came to each listener, in order."""

    def __init__(self, process: asyncio.subprocess.Process, uri: Uri) -> None:
        self.uri = uri
        self.heard: dict[str, list[Plain]] = defaultdict(list)
        self._process = process
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {0: asyncio.get_running_loop().create_future()}
        self._reader = asyncio.create_task(self._read())

    async def ready(self) -> None:
        """Returns once it is connected."""
        await asyncio.wait_for(self._calls[0], 30)

    async def call(self, do: str, payload: Payload | None = None, **arguments: Any) -> Any:
        """Perform an operation of the SDK. Raises `RefusedError`."""
        number = next(self._numbers)
        call = {"call": number, "do": do} | {key: _as_json(value) for key, value in arguments.items()}
        if payload is not None:
            call |= {"payload": payload.data.hex(), "format": payload.format}
        self._calls[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(call).encode() + b"\n")
        await self._process.stdin.drain()
        return await asyncio.wait_for(self._calls[number], 60)

    async def send(self, message: Plain) -> None:
        """By the transport layer."""
        whole = pb.UMessage(attributes=to_attributes(message), payload=message.payload)
        await self.call("send", message=whole.SerializeToString().hex())

    async def invoke(self, method: Uri, payload: Payload | None, ttl: int = 20_000, **options: Any) -> Payload | None:
        """By the RPC client."""
        answer = await self.call("invoke", payload, method=method, ttl=ttl, **options)
        return None if answer is None else Payload(bytes.fromhex(answer["payload"]), answer["format"])

    async def ask_utwin(self, method: Uri | str, topics: Sequence[Uri], form: int, ttl: int = 20_000) -> list[Last]:
        """By the RPC client. The question is in a payload format, and so is the answer."""
        listed = [uri_text(topic) for topic in topics]
        answer = await self.call("ask_utwin", method=method, topics=listed, format=form, ttl=ttl)
        assert answer["format"] == form
        return [_last(each) for each in answer["topics"]]

    async def hears(self, name: str, count: int = 1) -> list[Plain]:
        """What has come to a listener, once there is so much."""
        await until(lambda: len(self.heard[name]) >= count, f"{count} messages for {name}; there are {self.heard[name]}")
        return self.heard[name]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            told = json.loads(line)
            if "call" in told:
                future = self._calls.pop(told["call"]) if told["call"] else self._calls[0]
                if future.done():
                    continue
                if "error" in told:
                    future.set_exception(RefusedError(*told["error"]))
                else:
                    future.set_result(told["ok"])
            else:
                self.heard[told["heard"]].append(_plain(told["message"]))

    async def close(self) -> None:
        """Its input ends, and so does it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reader


def _plain(message: str) -> Plain:
    whole = pb.UMessage.FromString(bytes.fromhex(message))
    return from_attributes(whole.attributes, whole.payload)


def _last(told: dict[str, Any]) -> Last:
    payload, message = told["payload"], told["message"]
    return Last(
        uri_of(told["topic"]),
        told["code"],
        None if payload is None else bytes.fromhex(payload),
        None if message is None else _plain(message),
    )


def _as_json(value: Any) -> Any:
    return uri_text(value) if isinstance(value, tuple) else value


@asynccontextmanager
async def rust_peer(uri: Uri, network: Mapping[str, Any]) -> AsyncIterator[Peer]:
    """``uri``: of the uEntity. ``network``: the transport and its options (rust/src/main.rs)."""
    async with _peer([str(need("rust", BUILD / "rust" / "debug" / "peer"))], uri, network) as peer:
        yield peer


@asynccontextmanager
async def python_peer(uri: Uri, network: Mapping[str, Any]) -> AsyncIterator[Peer]:
    """The same with the SDK for Python, on an in-vehicle broker."""
    python = need("python", BUILD / "python" / "bin" / "python")
    async with _peer([str(python), "-m", "tests.interop.python.peer"], uri, network) as peer:
        yield peer


@asynccontextmanager
async def _peer(program: list[str], uri: Uri, network: Mapping[str, Any]) -> AsyncIterator[Peer]:
    config = {"authority": uri[0], "entity": uri[1], "version": uri[2], **network}
    process = await asyncio.create_subprocess_exec(
        *program,
        json.dumps(config),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES,
        cwd=ROOT,
    )
    peer = Peer(process, uri)
    try:
        await peer.ready()
        yield peer
    finally:
        await peer.close()
