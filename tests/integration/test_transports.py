"""A route may choose its transport; what clients see is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.cluster.harness import Cluster, Engine, body, free_port


async def test_a_route_over_aiohttp_answers_streams_and_fails_over(
    tmp_path: Path, private_redis: str
) -> None:
    # Given a model whose first route leads nowhere, both over the other transport
    def models(engines: list[Engine]) -> list[dict[str, Any]]:
        routes = [
            {"base_url": f"http://127.0.0.1:{free_port()}", "weight": 1e6},
            {"base_url": engines[0].url, "weight": 1e-6},
        ]
        return [
            {"id": "m", "name": "M", "provider": "vllm", "transport": "aiohttp", "route": routes}
        ]

    with Cluster(
        tmp_path, private_redis, engines={"a": {"ttft_ms": 0}}, models=models, replicas=1
    ) as cluster:
        async with httpx.AsyncClient(base_url=cluster.url, timeout=30) as http:
            # When it is asked for, whole and streamed
            whole = await http.post("/v1/chat/completions", json=body())
            streamed = await http.post("/v1/chat/completions", json=body(stream=True))

        # Then the second route answers both
        assert whole.json()["system_fingerprint"] == "a"
        assert streamed.text.endswith("data: [DONE]\n\n")
        assert whole.headers["x-concord-attempts"] == "2"
        assert cluster.engines[0].counters()["active"] == 0
