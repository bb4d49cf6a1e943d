"""The random numbers of a request come from its id, so that any replica can replay its draw."""

from __future__ import annotations

from hashlib import blake2b

UNDRAWN = frozenset({"declared", "pinned"})
"""The orders of candidates (`lua/admit.lua`) that leave nothing to chance."""


def draws(request_id: str, attempt: int, count: int) -> list[float]:
    """`count` numbers in [0, 1), each the first 53 bits of BLAKE2b-64 of `id|attempt|k`.

    `attempt` counts from 1, `k` from 0.
    """
    prefix = blake2b(f"{request_id}|{attempt}|".encode(), digest_size=8)
    numbers = []
    for k in range(count):
        digest = prefix.copy()
        digest.update(b"%d" % k)
        numbers.append((int.from_bytes(digest.digest(), "big") >> 11) / 2**53)
    return numbers
