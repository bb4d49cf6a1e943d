"""config/README.md, written from the Structs: `python -m gateway.config.reference > README.md`.

The tables cannot drift from what the loader accepts, and a test holds the file on disk to this
module's output. Only the introduction is written by hand.
"""

from __future__ import annotations

import sys
import typing
from types import UnionType
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.config.keys_schema import KeyEntry
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
| `keys.yaml` | the keys of callers | no; without it requests are anonymous |

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
            ("local_deployment[], remote_deployment[]", Deployment),
        ),
    ),
    ("keys.yaml", (("keys[]", KeyEntry),)),
)


def render() -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION]
    for file, tables in _FILES:
        parts.append(f"## {file}\n")
        parts += [_table(title, struct) for title, struct in tables]
    return "\n".join(parts)


def _table(title: str, struct: type[Struct]) -> str:
    shared = (
        {info.name for info in msgspec.structs.fields(Shared)} if struct is not Shared else set()
    )
    rows = [
        f"| `{info.encode_name}` | {_type(info.type)} | {_default(info)} | {_doc(info.type)} |"
        for info in msgspec.structs.fields(struct)
        if not (issubclass(struct, Shared) and info.name in shared)
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
        words = [_type(part) for part in inner if part not in (type(None), UnsetType, int)]
        return " or ".join(words or ["int"]) + limits
    if origin is typing.Literal:
        return ", ".join(f"`{word}`" for word in inner)
    if origin in (tuple, list):
        return "list" if inner[0] is Any else f"list of {_type(inner[0])}s"
    if origin is dict or issubclass(kind, Struct):
        return "mapping"
    return {str: "string", int: "int", float: "number", bool: "bool"}[kind] + limits


def _limits(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f", {meta.ge:.12g} to {meta.le:.12g}"
    if meta.gt is not None:
        return f" > {meta.gt:.12g}" + (f", at most {meta.le:.12g}" if meta.le is not None else "")
    return f" >= {meta.ge:.12g}" if meta.ge is not None else ""


if __name__ == "__main__":
    sys.stdout.write(render())
