"""config/README.md, written from the Structs: `python -m gateway.config.reference > README.md`.

The tables cannot drift from what the loader accepts, and a test holds the file on disk to this
module's output. Only the introduction is written by hand.
"""

from __future__ import annotations

import sys
import typing
from datetime import datetime
from types import UnionType
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.config.cooldown_schema import AllowedFailsPolicy
from gateway.config.coordinator_schema import CoordinatorSettings
from gateway.config.keys_schema import KeyEntry, Limited, TeamEntry, UserEntry
from gateway.config.limit_schema import LimitSettings, RateLimit, RetryBudget
from gateway.config.models_schema import (
    Amount,
    ModelEntry,
    Pricing,
    QuotaSource,
    RouteEntry,
    Shared,
    UpstreamKeyEntry,
)
from gateway.config.offload_schema import OffloadEntry
from gateway.config.quota_schema import QuotaFetcher, Usage
from gateway.config.routewise_reference import ROUTEWISE
from gateway.config.schema import (
    Affinity,
    Circuit,
    Deployment,
    Prefill,
    Priorities,
    RoutingFile,
    Server,
    State,
    TimeoutOverrides,
)
from gateway.config.strategies import STRATEGY_PARAMS
from gateway.config.upstream_schema import UpstreamConcurrency, UpstreamKeys

_INTRODUCTION = """\
# Configuration reference

This page is generated: `python -m gateway.config.reference > config/README.md`.

A configuration is a folder with up to three files.

| file | holds | needed |
|---|---|---|
| `models.yaml` | the models, and for each the routes that can serve it | yes |
| `routing.yaml` | settings of the cluster | no, all have defaults |
| `keys.yaml` | callers' keys, users, teams and limits | no; without it requests are anonymous |

`concord check DIR` reports every problem at once and changes nothing. Unknown keys, keys given
twice and names that lead to two models are errors.

## Variables

`${NAME}` in any string, also inside a longer one, is replaced by the environment variable;
`${NAME:-default}` has a default, which is plain text; `$${` is a literal `${`. A variable that is
set but empty counts as unset. When a replica starts, a route that needs an unset variable is
dropped if it says `optional: true`; otherwise its whole model is, with a warning that names both.
A caller's key whose variable is unset is refused. In routing.yaml an unset variable is an error.

Some settings can be overridden from the environment, by the names HybridInference gives them:
`CIRCUIT_FAILURE_THRESHOLD`, `CIRCUIT_COOLDOWN_SECONDS`, `CIRCUIT_MIN_AVAILABILITY`,
`ROUTER_HEALTH_EWMA_ALPHA`, `ROUTING_AFFINITY_ENABLED`, `ROUTING_AFFINITY_MAX_AGE_SEC`,
`ROUTING_PREFILL_AWARE_ENABLED`, `ROUTING_PREFILL_INTERVENE_TOKENS`,
`ROUTING_PREFILL_ELEPHANT_TOKENS`, `ROUTING_PREFILL_ELEPHANT_LIMIT`,
`ROUTING_PREFILL_AFFINITY_CEILING`, `ROUTING_PREFILL_HINT_TTL_SEC`,
`ROUTING_PRIORITY_INTERACTIVE`, `ROUTING_PRIORITY_LARGE`, `ROUTING_PRIORITY_ELEPHANT`,
`UPSTREAM_CONCURRENCY_ENABLED`, `UPSTREAM_CONCURRENCY_INITIAL_LIMIT`,
`UPSTREAM_CONCURRENCY_MAX_LIMIT`, `UPSTREAM_CONCURRENCY_PROBE_SUCCESS_INTERVAL`,
`UPSTREAM_CONCURRENCY_ACQUIRE_TIMEOUT_SEC`,
`UPSTREAM_COMPLETION_TIMEOUT_S`, `STREAM_IDLE_TIMEOUT_SECONDS`,
`STREAM_FIRST_BYTE_TIMEOUT_SECONDS`, `USER_AUTH_ENABLED`. A value that does not parse is a warning
and changes nothing.

| variable | meaning |
|---|---|
| `MODELS_CONFIG_PATH`, `ROUTING_CONFIG_PATH` | other places of the two files |
| `CONCORD_ADMIN_KEY` | a key that is always an administrator's |
| `CONCORD_SECRET` | what ids and digests are keyed with in Redis, and added keys encrypted |
| `<PROVIDER>_API_KEY`, `…_API_KEY1` to `20` | more keys for all routes with this `provider` |
| `CONCORD_HOST_ID` | this host's name in the locations of local engines (default: hostname) |

## Locations

A route's endpoint is known as `model:location` in state, logs and metrics.

| kind and address | location |
|---|---|
| any kind, `http://localhost:8000` | `local-8000`, on a Redis shared by hosts `local-8000@host` |
| any kind, `http://10.0.0.5:8000` | `10.0.0.5-8000` |
| openai_compat, vllm or sglang, `https://api.minimax.io/v1` | `minimax-api` |
| another kind, such as zai, `https://api.z.ai/v4` | `zai-api` |

Two routes of one model may not share a location; `location:` gives one of them another.

## Upstream keys

A route's keys are those of its `api_key` or `api_keys`, then those of its provider in the
environment, then those that were added at run time (`POST /admin/provider-keys`). The label
`provider` names an account: all routes that bear it share the last two, also one that lists no key
itself, unless its address begins with `http://`: no key goes out in plain text for a label's sake.
`DEEPSEEK_API_KEY` is of the provider `deepseek`; in the variable's name the label is in
capitals, with `_` for all that is neither a letter nor a digit.

```yaml
api_keys: [${FREE_KEY}, {key: ${PAID_KEY}, min_role: pro}]
```

A key with a `min_role` is spent for callers of this role and above alone, and by these first. Where
one key is written more than once under a provider, the most restrictive role counts. Among the keys
that a caller may use, the first serves; one that is refused (401, 402, 403, 429) is left alone in
the whole cluster for `upstream_keys.mute_seconds`, while another takes its place, also within the
same request, which never goes to a route twice with one key. After a 408, a 5xx or a broken answer
another key is tried, too, before the endpoint counts as failed; a key that fails when no other is
left to try is left alone as well, unless it is the last. A caller stays with its key for five
minutes. A route with one key that is kept for nobody asks nobody, and sends it.

Keys that are added at run time, and what is said there of others, hold under one `CONCORD_SECRET`.
After a change of it they count for nothing, so that a key that was kept for a role is everybody's:
`concord status` and `concord redis doctor` list them and what to do.

## Waiting, and what relieves it

Requests to a provider's account, that is a `provider` label and an upstream key, wait in line in
the whole cluster where more are under way than the account has been found to take
(`upstream_concurrency`). After `acquire_timeout` a request goes to the next route. Engines on this
host have no such limit, for they schedule by themselves.

With `offload:` one route of a model is kept for requests that the others cannot place in time:

```yaml
offload: {route_id: zai-api, wait_seconds: 3, engine_queue_limit: 4, max_input_tokens: 60000}
```

- While any other route may be used this one is not, whatever its weight. It is also the last resort
  when none is left. No caller is pinned to it.
- A request that has waited in line for `wait_seconds`, and a stream that has had no output that
  long after it was sent, goes there. That counts against no endpoint, and is forgotten: the next
  request begins where it would have begun. Should the offload route fail, the request returns to
  where it was, and waits as long as it takes.
- `engine_queue_limit` bounds the streams that an engine on this host has been sent and not begun to
  answer. All others wait in the gateway, where leaving costs the engine nothing. The line is the
  engine's, whatever models lead to it; the limit that came last holds. A stream that may not be
  offloaded goes over the limit after `acquire_timeout`.
- For prompts of more than `max_input_tokens`, and requests pinned to a route, there is no offload
  route.

Operators set other policies at run time (`PUT /admin/routing/offload-routes/{model}` with the same
keys), which hold in place of these until they are deleted. A policy whose route is out of service
has no effect.

## Cooldowns

An endpoint that cools down gets no request for a while: no replica's next request goes there. A
success meanwhile ends nothing, and of two pauses the one that ends later counts. Where all
endpoints of a model pause, a request is answered 429 with the time until the first of them is back.

How long: `cooldown_time` of the route, the model or routing.yaml, whichever is nearest; a
Retry-After (in seconds, also fractions of them, as a date, or `retry-after-ms`) can lengthen that
up to `max_cooldown`. Without a `cooldown_time` what the Retry-After says, without that, or where it
says 0, 5 seconds. A `cooldown_time` of 0 is never a pause.

When, as `cooldown_policy` of the model says: of the failures with 401, 402, 404, 408, 429 and 5xx,
with a timeout, or with an answer that is none,

- `hybrid`: those with a Retry-After. Besides, failures open the endpoint's `circuit`.
- `litellm`: those of this table, counted in the whole cluster over the last minute. Besides,
  failures open the `circuit`, but for 429.

| failure | the model's only endpoint in service | one of several |
|---|---|---|
| 429, 402 | never | at once |
| 401, 404 | at once | at once |
| others | when all of 1000 or more attempts have failed | when more than half of 5 or more have |

Under `litellm` a number of `allowed_fails` takes the table's place: an endpoint pauses when more
have failed within its `cooldown_time` (5 seconds if there is none), 0 being at the first; a model's
only endpoint never does. With an `allowed_fails_policy` each class that it names is counted alone,
also one that is no reason otherwise.

## Failover

A request that has failed before any of its answer was sent goes to another route. All requests for
a model share the `retry_budget` for that, whoever asks. Once it is spent, a client is told the
failure. What was refused for what it is (400, 404, 413, 422) goes on without it, and uses none.

Where failures come at once, a circuit opens before the budget is spent. It opens late for an
endpoint that hangs until requests time out: if a fifth of a busy model's requests went there, the
budget is enough for nearly all of them. If half went there, a fifth of those caught are told the
failure where it takes 30 s, three fifths where it takes 120 s (reckoned, with circuits as they are
by default). Shorter timeouts help most, a larger `percent` too.

## Strategies

`router:` of a model, or else `default_router:`, names how its requests find their route.

- `fixed`: a caller stays where its last request went (`affinity`). Others are drawn by `weight`,
  twice where much prefill waits, and go to the less loaded one (`prefill`). After a failure the
  routes are tried in the order of the file.
- `expected_ttft`: every attempt goes where its first token is to be expected soonest, judging by
  what waits there to be prefilled, by what is cached there of the conversation, and by how fast the
  endpoint has prefilled so far, which is learned from streams. Weights only decide between
  endpoints within 5 % of the best, so that speeds need not be told; a weight of 0 is out of service
  as ever. Conversations without the name of a session are told apart by how they begin. There are
  no pins, and `affinity` has no effect. `prefill.hint_ttl_seconds` should be about as long as the
  engines keep what nobody asks for.
"""

_FILES: tuple[tuple[str, tuple[tuple[str, type[Struct]], ...]], ...] = (
    (
        "models.yaml",
        (
            ("models[]", ModelEntry),
            ("models[].route[]", RouteEntry),
            ("models[] and models[].route[]", Shared),
            ("api_keys[] that is a mapping", UpstreamKeyEntry),
            ("allowed_fails_policy", AllowedFailsPolicy),
            ("models[].offload", OffloadEntry),
            ("pricing", Pricing),
            ("quota, concurrency", Amount),
            ("quota_source", QuotaSource),
            *((f"router_params of {name}", params) for name, params in STRATEGY_PARAMS.items()),
        ),
    ),
    (
        "routing.yaml",
        (
            ("top level", RoutingFile),
            ("circuit", Circuit),
            ("affinity", Affinity),
            ("prefill", Prefill),
            ("prefill.priorities", Priorities),
            ("timeouts", TimeoutOverrides),
            ("server", Server),
            ("state", State),
            ("limits", LimitSettings),
            ("upstream_concurrency", UpstreamConcurrency),
            ("upstream_keys", UpstreamKeys),
            ("quota_fetchers.<provider>", QuotaFetcher),
            ("quota_fetchers.<provider>.usages[]", Usage),
            ("retry_budget", RetryBudget),
            ("coordinator", CoordinatorSettings),
            ("local_deployment[], remote_deployment[]", Deployment),
        ),
    ),
    (
        "keys.yaml",
        (
            ("keys[]", KeyEntry),
            ("users[]", UserEntry),
            ("teams[]", TeamEntry),
            ("keys[], users[], teams[] and each of model_limits", Limited),
            ("a limit that is a mapping, `window` of rpm and tpm only", RateLimit),
        ),
    ),
)
_WORDS = {str: "string", int: "int", float: "number", bool: "bool", datetime: "date"}


def render() -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION, ROUTEWISE]
    for file, tables in _FILES:
        parts.append(f"## {file}\n")
        parts += [_table(title, struct) for title, struct in tables]
    return "\n".join(parts)


def _table(title: str, struct: type[Struct]) -> str:
    shared = {
        info.name
        for base in (Shared, Limited)
        if issubclass(struct, base) and struct is not base
        for info in msgspec.structs.fields(base)
    }
    rows = [
        f"| `{info.encode_name}` | {_type(info.type)} | {_default(info)} | {_doc(info.type)} |"
        for info in msgspec.structs.fields(struct)
        if info.name not in shared
    ]
    intro = (struct.__doc__ or "").strip().splitlines()[0]
    head = ["| key | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"### {title}", "", intro, "", *head, *rows, ""])


def _default(info: msgspec.structs.FieldInfo) -> str:
    if info.required:
        return "required"
    value = info.default
    if value is msgspec.NODEFAULT or value in (None, UNSET, ()) or isinstance(value, Struct):
        return ""
    if isinstance(value, tuple):
        return f"`[{', '.join(value)}]`"
    return f"`{msgspec.json.encode(value).decode().strip(chr(34))}`"


def _doc(kind: Any) -> str:
    return next(
        (meta.description for meta in getattr(kind, "__metadata__", ()) if meta.description), ""
    )


def _type(kind: Any) -> str:
    limits = ""
    while hasattr(kind, "__metadata__"):
        limits = limits or _limits(kind.__metadata__[0])
        kind = kind.__origin__
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (UnionType, typing.Union):
        without = (type(None), UnsetType, *((int,) if float in inner else ()))
        return " or ".join(_type(part) for part in inner if part not in without) + limits
    if origin is typing.Literal:
        return ", ".join(f"`{word}`" for word in inner)
    if origin in (tuple, list):
        if inner[0] is Any:
            return "list"
        return f"list of {_type(inner[0]).replace(' or ', 's or ')}s"
    if origin is dict or issubclass(kind, Struct):
        return "mapping"
    return _WORDS[kind] + limits


def _limits(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f", {meta.ge:.12g} to {meta.le:.12g}"
    if meta.gt is not None:
        return f" > {meta.gt:.12g}" + (f", at most {meta.le:.12g}" if meta.le is not None else "")
    return f" >= {meta.ge:.12g}" if meta.ge is not None else ""


if __name__ == "__main__":
    sys.stdout.write(render())
