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

from gateway.config.keys_schema import KeyEntry, Limited, RateLimit, TeamEntry, UserEntry
from gateway.config.models_schema import (
    Amount,
    ModelEntry,
    Pricing,
    QuotaSource,
    RouteEntry,
    Shared,
)
from gateway.config.schema import (
    Affinity,
    Circuit,
    Deployment,
    LimitSettings,
    Prefill,
    Priorities,
    RoutingFile,
    Server,
    State,
    TimeoutOverrides,
)
from gateway.config.strategies import STRATEGY_PARAMS

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
`UPSTREAM_COMPLETION_TIMEOUT_S`, `STREAM_IDLE_TIMEOUT_SECONDS`,
`STREAM_FIRST_BYTE_TIMEOUT_SECONDS`, `USER_AUTH_ENABLED`. A value that does not parse is a warning
and changes nothing.

| variable | meaning |
|---|---|
| `MODELS_CONFIG_PATH`, `ROUTING_CONFIG_PATH` | other places of the two files |
| `CONCORD_ADMIN_KEY` | a key that is always an administrator's |
| `CONCORD_SECRET` | what ids of callers and digests of prompts are keyed with in Redis |
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
    parts = [_INTRODUCTION]
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
        return "list" if inner[0] is Any else f"list of {_type(inner[0])}s"
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
