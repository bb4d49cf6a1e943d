"""Traces: who asks when, with how long a prompt, and which of its blocks others have, too.

Two formats, told apart by the file's ending:

- `.jsonl`, as Mooncake's: `timestamp` (ms), `input_length`, `output_length` (tokens), `hash_ids`
  (ids of the prompt's blocks; equal leading ids are a shared prefix), and optionally `caller`;
- `.csv`, as Azure's: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`. It says nothing of prefixes,
  so every prompt is new.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct


class TraceError(Exception):
    """A trace that cannot be read; the text names file, line and fault."""


class Request(Struct, frozen=True):
    """One request of a trace."""

    at_s: float
    """Since the first one."""
    tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    caller: str
    """The conversation: unless the trace names callers, the second block, for the first is often a
    system prompt that all share."""


class _Line(Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []
    caller: str | None = None


def read(path: Path, block_tokens: int) -> list[Request]:
    """Read a trace, in the order of time. Raises `TraceError`."""
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv}
    if path.suffix not in readers:
        raise TraceError(f"{path}: neither .jsonl nor .csv")
    try:
        found = sorted(readers[path.suffix](path, block_tokens), key=lambda one: one.at_s)
    except OSError as problem:
        raise TraceError(f"{path}: {problem.strerror}") from problem
    if not found or found[-1].at_s == found[0].at_s:
        raise TraceError(f"{path}: holds no two requests at different times")
    start_s = found[0].at_s
    return [msgspec.structs.replace(one, at_s=one.at_s - start_s) for one in found]


def scale(requests: Sequence[Request], seconds: float) -> list[Request]:
    """Let a trace last so long."""
    factor = seconds / requests[-1].at_s
    return [msgspec.structs.replace(one, at_s=one.at_s * factor) for one in requests]


def prolong(requests: Sequence[Request], seconds: float) -> list[Request]:
    """Repeat a trace under new conversations until it has lasted so long."""
    span_s = requests[-1].at_s
    every = {block for one in requests for block in one.blocks}
    step, shared = 1 + max(every) - min(every), requests[0].blocks[0]
    found: list[Request] = []
    for turn in itertools.count():
        for one in requests:
            at_s = one.at_s + turn * span_s
            if at_s > seconds:
                return found
            # The block that the trace begins with is a system prompt, and stays shared.
            blocks = tuple(b if b == shared else b + turn * step for b in one.blocks)
            caller = f"{one.caller}/{turn}"
            found.append(Request(at_s, one.tokens, one.output_tokens, blocks, caller))
    raise AssertionError


def new_share(requests: Sequence[Request], block_tokens: int) -> float:
    """The share of all prompt tokens that a cache without end would not have seen before."""
    seen: set[int] = set()
    new = 0
    for one in requests:
        known = sum(1 for _ in itertools.takewhile(seen.__contains__, one.blocks))
        new += max(one.tokens - known * block_tokens, 0)
        seen.update(one.blocks)
    return new / sum(one.tokens for one in requests)


def _read_jsonl(path: Path, block_tokens: int) -> Iterator[Request]:
    decoder = msgspec.json.Decoder(_Line)
    fresh = itertools.count(-1, -1)
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                line = decoder.decode(text)
            except msgspec.DecodeError as problem:
                raise TraceError(f"{path}:{number}: {problem}") from problem
            blocks = tuple(line.hash_ids) or _fresh(fresh, line.input_length, block_tokens)
            caller = line.caller or str(blocks[min(1, len(blocks) - 1)])
            yield _checked(
                path,
                number,
                Request(
                    line.timestamp / 1000, line.input_length, line.output_length, blocks, caller
                ),
            )


def _read_csv(path: Path, block_tokens: int) -> Iterator[Request]:
    fresh = itertools.count(-1, -1)
    with path.open(newline="") as file:
        for row in (reader := csv.DictReader(file)):
            try:
                at_s = datetime.fromisoformat(row["TIMESTAMP"]).timestamp()
                tokens, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            except (KeyError, TypeError, ValueError) as problem:
                raise TraceError(f"{path}:{reader.line_num}: {problem!r}") from problem
            blocks = _fresh(fresh, tokens, block_tokens)
            yield _checked(
                path, reader.line_num, Request(at_s, tokens, output, blocks, str(blocks[0]))
            )


def _fresh(numbers: Iterator[int], tokens: int, block_tokens: int) -> tuple[int, ...]:
    """Blocks that no other prompt has."""
    return tuple(itertools.islice(numbers, max(-(-tokens // block_tokens), 1)))


def _checked(path: Path, number: int, request: Request) -> Request:
    if request.tokens < 1 or request.output_tokens < 0:
        raise TraceError(f"{path}:{number}: a prompt needs tokens, and an answer not less than 0")
    return request
