"""Every Redis key, spelt here and nowhere else.

All keys that one decision needs share a hash tag, so that they live in one slot: `{m:<model>}` for
a model, `{c:<tag>}` for limits that are judged together, `{cluster}` for what belongs to all.
`lua/README.md` says what each holds.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from msgspec import Struct

SAFE = "._/:@-"
"""Characters besides letters and digits that ids keep; the rest is percent-encoded."""

MODEL_KINDS = ("endpoints", "claims", "claimed", "reaped", "epoch", "overrides")
CALLER_KINDS = ("pin", "hint")
LIMIT_KINDS = ("limits", "reservations", "reserved", "lapsed")
CLUSTER_KINDS = ("replicas", "salt", "keys", "key_ids")


def encode_id(text: str) -> str:
    """Spell an id so that it cannot break a key, a hash tag or a packed argument."""
    return quote(text, safe=SAFE, errors="surrogatepass").replace("~", "%7E")


class Keys(Struct, frozen=True):
    """Spells keys under a namespace."""

    namespace: str = "gw"

    def model(self, model_id: str) -> dict[str, str]:
        """All keys of a model, by kind, but those of its callers."""
        return _model_keys(self.namespace, model_id)

    def caller(self, model_id: str, caller: str) -> dict[str, str]:
        """All keys of a model and of one of its callers, by kind."""
        keys = _model_keys(self.namespace, model_id)
        tag = keys["endpoints"].removesuffix("endpoints")
        return {**keys, "pin": f"{tag}pin:{caller}", "hint": f"{tag}hint:{caller}"}

    def limits(self, tag: str) -> dict[str, str]:
        """All keys of the limits under a tag, by kind."""
        return _limit_keys(self.namespace, tag)

    def cluster(self) -> dict[str, str]:
        """All keys of the cluster itself, by kind."""
        tag = f"{self.namespace}:{{cluster}}"
        return {kind: f"{tag}:{kind}" for kind in CLUSTER_KINDS}


@lru_cache(maxsize=4096)
def _model_keys(namespace: str, model_id: str) -> dict[str, str]:
    tag = f"{namespace}:{{m:{encode_id(model_id)}}}"
    return {kind: f"{tag}:{kind}" for kind in MODEL_KINDS}


@lru_cache(maxsize=4096)
def _limit_keys(namespace: str, tag: str) -> dict[str, str]:
    return {kind: f"{namespace}:{{c:{encode_id(tag)}}}:{kind}" for kind in LIMIT_KINDS}
