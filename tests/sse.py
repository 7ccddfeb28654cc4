"""Reads server-sent events, as a browser would: the kind and the data of each."""

import asyncio
import json
from typing import Any

import aiohttp

Event = tuple[str, Any]


async def next_event(answer: aiohttp.ClientResponse, within_s: float = 20.0) -> Event:
    """The next event of a stream; EOFError if it has ended. Comments are passed over."""
    kind = data = ""
    async with asyncio.timeout(within_s):
        while line := await answer.content.readline():
            name, _, value = line.decode("ascii").rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                data = value
            elif not name and data:
                return kind, json.loads(data)
    raise EOFError


async def until_event(answer: aiohttp.ClientResponse, kind: str, **fields: object) -> Any:
    """The data of the next event of a kind whose data has these fields."""
    while True:
        found, data = await next_event(answer)
        if found == kind and fields.items() <= data.items():
            return data
