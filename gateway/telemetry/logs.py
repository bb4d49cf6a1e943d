"""Structured logs: one JSON object per line on stderr.

Events have stable names (`msg`) and flat fields.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

STDERR = 2
LOGGER = logging.getLogger("concord")


class _Event(logging.LogRecord):
    """A record without what no line shows, and Python looks up for each: file, thread, process."""

    def __init__(self, name: str, level: int, fields: Mapping[str, object]) -> None:
        self.name, self.msg, self.args = LOGGER.name, name, None
        self.levelno, self.levelname = level, logging.getLevelName(level)
        self.created = time.time()
        self.pathname = self.filename = ""
        self.lineno = 0
        self.exc_info = self.exc_text = self.stack_info = None
        self.fields = fields


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; fields come from `event`."""

    def __init__(self, replica: str | None = None) -> None:
        """`replica` stands in every line."""
        super().__init__()
        self._common = {"replica": replica} if replica else {}

    def format(self, record: logging.LogRecord) -> str:
        """Render one line."""
        return self.encode(record).decode()

    def encode(self, record: logging.LogRecord) -> bytes:
        """Render one line as bytes."""
        line: dict[str, Any] = {
            "ts": f"{_second(int(record.created))}.{int(record.created * 1000) % 1000:03d}+00:00",
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            **self._common,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line)


@lru_cache(maxsize=4)
def _second(since_epoch_s: int) -> str:
    """A second as ISO 8601 writes it, without a zone: spelling one takes longer than the rest."""
    return datetime.fromtimestamp(since_epoch_s, UTC).isoformat().removesuffix("+00:00")


class LineHandler(logging.Handler):
    """Writes each line to stderr in one go, without a text layer or a lock in between.

    For a process whose lines come from one thread, but for a few: two never share a write.
    """

    def __init__(self, formatter: JsonFormatter) -> None:
        super().__init__()
        self._encode = formatter.encode

    def createLock(self) -> None:
        """None is needed."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line. Where nobody reads them any more they are lost, and no request fails."""
        rest = self._encode(record) + b"\n"
        try:
            while rest:
                rest = rest[os.write(STDERR, rest) :]
        except OSError:
            return


def configure(replica: str) -> None:
    """Send everything, uvicorn's own messages included, to stderr as JSON lines."""
    handler = LineHandler(JsonFormatter(replica))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    LOGGER.setLevel(logging.INFO)
    # What no line shows need not be gathered for each.
    logging._srcfile = None  # where a line was logged from
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)


def event(name: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log an event by its stable name. Fields MUST be free of secrets and prompts."""
    tell(name, fields, level=level)


def tell(name: str, fields: Mapping[str, object], *, level: int = logging.INFO) -> None:
    """The same, for what is told so often that passing many fields by keyword would count."""
    if LOGGER.isEnabledFor(level):
        LOGGER.handle(_Event(name, level, fields))


def bug(**fields: object) -> None:
    """Log the exception being handled, which nobody expected, with its traceback."""
    LOGGER.error("unexpected_error", exc_info=True, extra={"fields": fields})


class Once:
    """Tells the first time of each key, so that a line is logged once per caller and not per call.

    Bounded: after `limit` keys it starts over.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def first(self, key: str) -> bool:
        """Whether the key has not come before."""
        if key in self._seen:
            return False
        if len(self._seen) >= self._limit:
            self._seen.clear()
        self._seen.add(key)
        return True
