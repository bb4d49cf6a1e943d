"""The shape of keys.yaml. The field docs become the reference in config/README.md."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.config.schema import Role


class KeyEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One caller's key."""

    id: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9._@/-]{1,128}$",
            description="Public name of the caller; appears in logs and limits.",
            extra={"form": "1 to 128 of A-Z a-z 0-9 . _ @ / -"},
        ),
    ]
    key: Annotated[
        str | None, Meta(description="The secret, best as `${VARIABLE}`. Or give key_sha256.")
    ] = None
    key_sha256: Annotated[
        Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$", extra={"form": "64 hex digits"})] | None,
        Meta(description="SHA-256 of the secret in hex, so that the file holds no secret."),
    ] = None
    role: Annotated[Role, Meta(description="free, pro, internal or admin.")] = "free"
    models: Annotated[
        tuple[str, ...] | None,
        Meta(description="Ids or aliases the caller may name; all of its role's without."),
    ] = None


class KeysFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """keys.yaml."""

    keys: Annotated[tuple[KeyEntry, ...], Meta(description="One entry per key.")]
