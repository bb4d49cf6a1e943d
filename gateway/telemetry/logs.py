"""Structured logs: one JSON object per line on stderr.

Events have stable names (`msg`) and flat fields. Repeated warnings of one kind are thinned out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

LOGGER = logging.getLogger("concord")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; fields come from `event`."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one line."""
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure(level: int = logging.INFO) -> None:
    """Send everything, uvicorn's own messages included, to stderr as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    LOGGER.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)


def event(name: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log an event by its stable name. Fields MUST be free of secrets and prompts."""
    LOGGER.log(level, name, extra={"fields": fields})


def bug(**fields: object) -> None:
    """Log the exception being handled, which nobody expected, with its traceback."""
    LOGGER.error("unexpected_error", exc_info=True, extra={"fields": fields})


class Thinned:
    """Logs an event at most once per interval and name; the next line says how many were left out.

    Bounded by the number of names, which are constants in the code.
    """

    def __init__(
        self, interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._next_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def event(self, name: str, *, level: int = logging.WARNING, **fields: object) -> None:
        """Log, or count what was left out."""
        now = self._clock()
        if now < self._next_s.get(name, 0.0):
            self._left_out[name] = self._left_out.get(name, 0) + 1
            return
        self._next_s[name] = now + self._interval_s
        event(name, level=level, left_out=self._left_out.pop(name, 0), **fields)
