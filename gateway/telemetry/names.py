"""Every name that a span bears, spelt once: dashboards are built on them.

Ours begin with `concord.`; HTTP's are OpenTelemetry's stable ones. Those for generative AI have
moved while still in development, so there are two generations of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

# Spans. A server span is named `POST <path>`.
ADMIT = "admit"
ATTEMPT = "attempt"
GATE = "gate"
SETTLE = "settle"

# Events.
CANDIDATE_DROPPED = "candidate_dropped"
FIRST_OUTPUT = "first_output"

# Attributes.
HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
URL_PATH = "url.path"
ERROR_TYPE = "error.type"

REQUEST_ID = "concord.request_id"
CALLER = "concord.caller"
MODEL = "concord.model"
STREAM = "concord.stream"
CONFIG_DIGEST = "concord.config_digest"
ATTEMPTS = "concord.attempts"
CLIENT_CANCELLED = "concord.client_cancelled"
OVERHEAD_MS = "concord.overhead_ms"
"""From the first byte of the request to sending it upstream for the first time."""
TTFT_MS = "concord.ttft_ms"
"""To the first output: on a server span since the request came, on an attempt since its start."""
ENDPOINT = "concord.endpoint"
ATTEMPT_NUMBER = "concord.attempt"
HEDGE = "concord.hedge"
"""Whether the attempt was sent beside another that had no output."""
PROVIDER = "concord.provider"
"""The account or service of the route, as the configuration calls it."""
ORDER = "concord.order"
"""How candidates were taken: `draw`, `declared` or `pinned`."""
CANDIDATES = "concord.candidates"
"""`<location>=<weight>` of each, in the order in which the draw lines them up."""
DRAW_NUMBERS = "concord.draw.numbers"
"""The numbers in [0, 1) that were used, in turn: each struck a candidate out or chose one."""
REASON = "concord.reason"
STALE = "concord.stale"
"""Whether nothing was decided, since an operator had just changed the model's overrides."""
DROPPED_COUNT = "concord.dropped.count"
PROBE = "concord.probe"
PIN = "concord.pin"
"""What became of the caller's pin: `kept` or `made`."""
QUEUE_MS = "concord.queue_ms"
"""For how long an attempt stood in line at a gate."""
OUTCOME = "concord.outcome"
CIRCUIT = "concord.circuit"
"""What a settlement has turned the endpoint's circuit to."""


class GenAI(Struct, frozen=True, kw_only=True):
    """One generation of the names for generative AI; `None` for what it has no name for."""

    provider: str
    operation: str = "gen_ai.operation.name"
    model: str = "gen_ai.request.model"
    stream: str | None = None
    input_tokens: str = "gen_ai.usage.input_tokens"
    output_tokens: str = "gen_ai.usage.output_tokens"
    cached_tokens: str = "gen_ai.usage.cache_read.input_tokens"
    ttft_s: str | None = None


LEGACY = GenAI(provider="gen_ai.system")
"""As in semantic conventions up to 1.36, which most dashboards and other gateways speak."""
LATEST = GenAI(
    provider="gen_ai.provider.name",
    stream="gen_ai.request.stream",
    ttft_s="gen_ai.response.time_to_first_chunk",
)
"""As in the conventions of their own, 0.1."""


def gen_ai(env: Mapping[str, str]) -> GenAI:
    """The generation that OTEL_SEMCONV_STABILITY_OPT_IN, a list, asks for."""
    asked = env.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
    is_latest = "gen_ai_latest_experimental" in map(str.strip, asked)
    return LATEST if is_latest else LEGACY
