"""Every Redis key, spelt here and nowhere else.

All keys that one decision needs share a hash tag, so that they live in one slot: `{m:<model>}` for
a model, `{c:<tag>}` for limits that are judged together, `{u:<provider>:<key12>}` for an upstream
account, `{k:<provider>}` for the keys toward a provider, `{e:<host:port>}` for an engine,
`{q:<pool>}` for a quota or places of an account,
`{cluster}` for what belongs to all.
`lua/README.md` says what each holds.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from msgspec import Struct

SAFE = "._/:@-"
"""Characters besides letters and digits that ids keep; the rest is percent-encoded."""

MODEL_KINDS = (
    *("endpoints", "claims", "claimed", "reaped", "epoch", "overrides"),
    *("outcomes", "profile"),
)
CALLER_KINDS = ("pin", "hint")
LIMIT_KINDS = ("limits", "reservations", "reserved", "lapsed")
GATE_KINDS = ("gate", *(f"gate_{w}" for w in ("holders", "line", "aside", "tickets", "frozen")))
SUPPLY_KINDS = ("quota", "taken", "places")
POOL_KINDS = ("mutes", "declared", "declared_epoch")
BOUND = "bound"
"""Of a provider's keys, too, one for each caller of an endpoint."""
CLUSTER_KINDS = ("replicas", "salt", "keys", "key_ids", "lease", "published", "offloads")
LASTING_KINDS = frozenset(
    {"epoch", "overrides", "salt", "keys", "key_ids", "lease", "declared", "declared_epoch"}
)
"""Kinds of keys that stay until somebody removes them. All others are to have a TTL; `limits` loses
it once a budget is for good."""
_KEY = re.compile(r"\{(?:([a-z]):([^}]*)|cluster)\}:([a-z_]+)(?::(.*))?", re.DOTALL)


@lru_cache(maxsize=4096)
def encode_id(text: str) -> str:
    """Spell an id so that it cannot break a key, a hash tag or a packed argument."""
    return quote(text, safe=SAFE, errors="surrogatepass").replace("~", "%7E")


class Key(Struct, frozen=True, kw_only=True):
    """A key that was found in Redis, read."""

    tag: str
    """What its tag begins with: `m`, `c`, `u`, `e` …, or `cluster`."""
    id: str
    """What follows in the tag, such as a model's id; empty for the cluster."""
    kind: str
    owner: str
    """A caller's digest, of kinds that each caller has; else empty."""

    @property
    def family(self) -> str:
        """What it has in common with its like, such as `{m:…}:pin:…`."""
        tag = f"{{{self.tag}:…}}" if self.tag != "cluster" else "{cluster}"
        return f"{tag}:{self.kind}{':…' if self.owner else ''}"


class Keys(Struct, frozen=True):
    """Spells keys under a namespace."""

    namespace: str = "gw"

    def model(self, model_id: str) -> dict[str, str]:
        """All keys of a model, by kind, but those of its callers."""
        return _model_keys(self.namespace, model_id)

    def caller(self, model_id: str, caller: str) -> dict[str, str]:
        """All keys of a model and of one of its callers, by kind."""
        if not caller:
            return _keys_of_nobody(self.namespace, model_id)
        return _caller_keys(_model_keys(self.namespace, model_id), caller)

    def limits(self, tag: str) -> dict[str, str]:
        """All keys of the limits under a tag, by kind."""
        return _limit_keys(self.namespace, tag)

    def gate(self, tag: str) -> dict[str, str]:
        """All keys of a gate, by kind. `tag` is `u:<provider>:<key12>` or `e:<host:port>`."""
        return _gate_keys(self.namespace, tag)

    def grants(self, tag: str = "") -> str:
        """What channels of grants begin with; a replica's id ends them.

        With a tag they share the slot of that gate, which sharded channels must.
        """
        return f"{self.gate(tag)['gate']}_grants:" if tag else f"{self.namespace}:grants:"

    def pool(self, provider: str) -> dict[str, str]:
        """All keys of what is known of a provider's keys, by kind, but those of callers."""
        return _pool_keys(self.namespace, provider)

    def bound(self, provider: str, endpoint: str, caller: str) -> dict[str, str]:
        """The same, and that of a caller of an endpoint."""
        keys = _pool_keys(self.namespace, provider)
        tag = keys["mutes"].removesuffix("mutes")
        return {**keys, BOUND: f"{tag}{BOUND}:{encode_id(endpoint)}:{caller}"}

    def supply(self, pool: str) -> dict[str, str]:
        """All keys of what an account gives besides requests that are paid one by one, by kind."""
        tag = f"{self.namespace}:{{q:{encode_id(pool)}}}"
        return {kind: f"{tag}:{kind}" for kind in SUPPLY_KINDS}

    def cluster(self) -> dict[str, str]:
        """All keys of the cluster itself, by kind."""
        tag = f"{self.namespace}:{{cluster}}"
        return {kind: f"{tag}:{kind}" for kind in CLUSTER_KINDS}

    def read(self, key: str) -> Key | None:
        """Read a key of this namespace; `None` for what is not spelt as ours are."""
        match = _KEY.fullmatch(key.removeprefix(f"{self.namespace}:"))
        if match is None or not key.startswith(f"{self.namespace}:"):
            return None
        tag, id, kind, owner = match.groups()
        return Key(tag=tag or "cluster", id=unquote(id or ""), kind=kind, owner=owner or "")


def _caller_keys(of_model: dict[str, str], caller: str) -> dict[str, str]:
    tag = of_model["endpoints"].removesuffix("endpoints")
    return {**of_model, "pin": f"{tag}pin:{caller}", "hint": f"{tag}hint:{caller}"}


@lru_cache(maxsize=4096)
def _keys_of_nobody(namespace: str, model_id: str) -> dict[str, str]:
    return _caller_keys(_model_keys(namespace, model_id), "")


@lru_cache(maxsize=4096)
def _model_keys(namespace: str, model_id: str) -> dict[str, str]:
    tag = f"{namespace}:{{m:{encode_id(model_id)}}}"
    return {kind: f"{tag}:{kind}" for kind in MODEL_KINDS}


@lru_cache(maxsize=4096)
def _limit_keys(namespace: str, tag: str) -> dict[str, str]:
    return {kind: f"{namespace}:{{c:{encode_id(tag)}}}:{kind}" for kind in LIMIT_KINDS}


@lru_cache(maxsize=4096)
def _gate_keys(namespace: str, tag: str) -> dict[str, str]:
    return {kind: f"{namespace}:{{{encode_id(tag)}}}:{kind}" for kind in GATE_KINDS}


@lru_cache(maxsize=4096)
def _pool_keys(namespace: str, provider: str) -> dict[str, str]:
    return {kind: f"{namespace}:{{k:{encode_id(provider)}}}:{kind}" for kind in POOL_KINDS}
