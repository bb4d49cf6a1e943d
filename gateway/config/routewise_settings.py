"""What of `routewise` operators may change at run time, and which value is in force.

An override of the model comes first, then what its router_params say, then the fallback that was
set for all models, then the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, structs

from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.overrides import Overrides
from gateway.core.route import Model


class Setting(Struct, frozen=True, kw_only=True):
    """A parameter that may be changed."""

    param: str
    """Its name in router_params."""
    value_type: Literal["float", "int", "bool"]
    least: float
    most: float
    description: str

    @property
    def default(self) -> float | int | bool:
        """What holds where nothing is said."""
        value: float | int | bool = getattr(RoutewiseParams(), self.param)
        return value

    def read(self, value: object) -> float | None:
        """A value as it is kept; `None` for one of another type or out of bounds."""
        if self.value_type == "bool":
            return float(value) if isinstance(value, bool) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if self.value_type == "int" and not isinstance(value, int):
            return None
        # Compared first: a whole number may be too large for a float.
        return float(value) if self.least <= value <= self.most else None

    def typed(self, kept: float) -> float | int | bool:
        """A value that is kept, as it is told and used."""
        if self.value_type == "bool":
            return bool(kept)
        return int(kept) if self.value_type == "int" else kept


SETTINGS: Mapping[str, Setting] = {
    "routewise_budget_alpha": Setting(
        param="budget_alpha",
        value_type="float",
        least=0,
        most=1,
        description="What requests may cost: 0 as with the cheapest route, 1 as with the dearest.",
    ),
    "routewise_latency_slo_sec": Setting(
        param="latency_slo_sec",
        value_type="float",
        least=0.001,
        most=3600,
        description="When a first output is late, in seconds.",
    ),
    "routewise_latency_min_samples": Setting(
        param="latency_min_samples",
        value_type="int",
        least=0,
        most=1_000_000,
        description="With fewer first outputs a profile is told to be thin.",
    ),
    "routewise_probe_enabled": Setting(
        param="routewise_probe_enabled",
        value_type="bool",
        least=0,
        most=1,
        description="Whether the coordinator samples endpoints.",
    ),
    "routewise_probe_interval_sec": Setting(
        param="routewise_probe_interval_sec",
        value_type="float",
        least=0.1,
        most=86_400,
        description="How often, in seconds.",
    ),
}


def in_force(model: Model, overrides: Overrides) -> RoutewiseParams:
    """The parameters of a model with this strategy, as they hold now."""
    params = model.router_params
    if not isinstance(params, RoutewiseParams):
        raise TypeError(f"{model.id}: router_params of {model.router}: {params!r}")
    if not (overrides.settings or overrides.fallbacks):
        return params
    changes = {}
    for key, setting in SETTINGS.items():
        kept = overrides.settings.get(key)
        if kept is None and setting.param not in model.router_params_given:
            kept = overrides.fallbacks.get(key)
        if kept is not None and setting.least <= kept <= setting.most:
            changes[setting.param] = setting.typed(kept)
    return structs.replace(params, **changes)
