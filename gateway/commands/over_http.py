"""A running `concord up`, asked through the first replica that answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

from gateway.admin.circuits import CircuitReset
from gateway.admin.doctor import Diagnosis
from gateway.admin.explanation import Explanation
from gateway.admin.status import Status
from gateway.commands.reach import CannotTell, on_redis
from gateway.commands.running import Running

TIMEOUT_S = 10.0

T = TypeVar("T")


class OverHttp:
    """The cluster of a running `up` (`reach.Cluster`)."""

    def __init__(self, running: Running, environ: Mapping[str, str]) -> None:
        self._running = running
        self._environ = environ

    def explain(self, asked: Mapping[str, str]) -> Explanation:
        """Where a request would go."""
        return self._ask("GET", "/admin/routing/explain", Explanation, asked)

    def status(self) -> Status:
        """Everything at once."""
        return self._ask("GET", "/admin/status", Status)

    def reset_circuit(self, model: str, endpoint: str) -> CircuitReset:
        """Forget an endpoint's failures."""
        where = "/".join(quote(word, safe="") for word in (model, endpoint))
        path = f"/admin/routing/circuits/{where}"
        return self._ask("DELETE", path, CircuitReset)

    def examine_redis(self) -> Diagnosis:
        """Look at its Redis, which only replicas and this host's user reach."""
        running = self._running
        return on_redis(Path(running.config), self._environ, running.redis).examine_redis()

    def _ask(
        self, method: str, path: str, shape: type[T], params: Mapping[str, str] | None = None
    ) -> T:
        answer = self._answer(method, path, params)
        try:
            if answer.is_success:
                return msgspec.json.decode(answer.content, type=shape)
            message = str(answer.json()["error"]["message"])
        except (msgspec.DecodeError, ValueError, LookupError, TypeError):
            message = f"the answer of {answer.request.url.netloc.decode()} is not understood"
        raise CannotTell(message)

    def _answer(self, method: str, path: str, params: Mapping[str, str] | None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self._running.admin_key}"}
        with httpx.Client(headers=headers, timeout=TIMEOUT_S, trust_env=False) as client:
            for replica in self._running.replicas:
                try:
                    return client.request(method, replica + path, params=params)
                except httpx.TransportError:
                    continue  # another may be well
        raise CannotTell(
            f"`concord up` does not answer at {', '.join(self._running.replicas)}; if it has "
            "ended, give --config DIR and --redis URL"
        )
