"""What the row of an endpoint says, which anybody may have edited: nonsense reads as unset."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.admin.limits import LimitUse, uses_of
from gateway.core.route import Route
from gateway.state.standing import Cooldown, Standing

CIRCUITS = ("open", "half_open")


class Row(Struct, frozen=True, kw_only=True):
    """The live state of one endpoint, as all replicas share it (`lua/README.md`)."""

    circuit: str
    """`closed`, `open` or `half_open`."""
    availability: float
    """Moving average of its outcomes, 1 at best."""
    failures: int
    last_status: int | None
    auth_rejections: int
    inflight: int
    prefill_tokens: int
    elephants: int
    unreachable_from: Mapping[str, int]
    """Replica to connect failures that no other replica has confirmed."""
    cooldown: Cooldown | None
    """A pause, while it lasts."""
    limits: Sequence[LimitUse]


def row_of(route: Route, standing: Standing) -> Row:
    """A route's row among those of its model."""
    at = route.location
    limits = uses_of(route.limits, standing.uses.get(at, ()))
    return read_row(standing.rows.get(at, {}), standing.cooldowns.get(at), limits)


def read_row(
    fields: Mapping[str, str], cooldown: Cooldown | None = None, limits: Sequence[LimitUse] = ()
) -> Row:
    """Read a row. An absent field is the healthy default."""
    circuit = fields.get("circuit", "")
    return Row(
        circuit=circuit if circuit in CIRCUITS else "closed",
        availability=round(_number(fields.get("availability"), 1.0), 4),
        failures=_count(fields, "failures"),
        last_status=_count(fields, "last_status") or None,
        auth_rejections=_count(fields, "auth_rejections"),
        inflight=_count(fields, "inflight"),
        prefill_tokens=_count(fields, "prefill_tokens"),
        elephants=_count(fields, "elephants"),
        unreachable_from=_unreachable_from(fields.get("conn", "")),
        cooldown=cooldown,
        limits=limits,
    )


def warnings_of(model_id: str, fields: Mapping[str, str]) -> list[str]:
    """What an operator ought to know of a model, by its fields that are of no endpoint.

    They count for good: whoever has seen to it deletes the field.
    """
    faults, steps = _count(fields, "prefill_faults"), _count(fields, "clock_steps")
    warnings: list[str] = []
    if faults:
        warnings.append(
            f"model {model_id}: {faults} draws could not look at prefill (prefill_faults)"
        )
    if steps:
        warnings.append(f"model {model_id}: Redis's clock fell back {steps} times (clock_steps)")
    return warnings


def plain(text: str) -> int | float | str:
    """A field's text, as a number where it is one."""
    try:
        return int(text)
    except ValueError:
        pass
    number = _number(text, math.nan)
    return text if math.isnan(number) else number


def _unreachable_from(notes: str) -> dict[str, int]:
    words = (word.split(":") for word in notes.split())
    counts = {word[0]: int(_number(word[1], 0)) for word in words if len(word) == 3}
    return {replica: count for replica, count in counts.items() if count > 0}


def _count(fields: Mapping[str, str], name: str) -> int:
    return int(_number(fields.get(name), 0))


def _number(text: str | None, default: float) -> float:
    try:
        number = float(text) if text is not None else default
    except ValueError:
        return default
    return number if math.isfinite(number) else default
