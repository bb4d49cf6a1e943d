"""The local/remote split: how much of a model's traffic its own engines get.

`local_fraction` is divided among the routes whose address a `local_deployment` entry gives for the
model, the rest among those of `remote_deployment`. A side without a route leaves its part to the
other. A route of neither weighs what its share has been and comes last in failover. A route of
weight 0 is out of service, and no split changes that.

HybridInference switches the split off as soon as weights can be overridden at run time. Here it
always applies, and an override replaces the weight that it gives.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.config.problems import Problems, did_you_mean
from gateway.config.schema import Deployment
from gateway.core.route import WEIGHT_TOLERANCE, Model, Route

Side = Literal["local", "remote"]


class Split(Struct, frozen=True, kw_only=True):
    """What routing.yaml says of local and remote deployments, their addresses without a slash."""

    local_fraction: float
    local: tuple[Deployment, ...]
    remote: tuple[Deployment, ...]

    def over(self, names: Collection[str], routes: Sequence[Route]) -> list[Route]:
        """Give the routes of a model their weights, and put those of a deployment first.

        `names` are the model's id and aliases.
        """
        sides = [self._side(names, route) for route in routes]
        size = Counter(sides)
        if not size["local"] and not size["remote"]:
            return list(routes)
        parts = {"local": 1.0, "remote": 1.0}
        if size["local"] and size["remote"]:
            parts = {"local": self.local_fraction, "remote": 1 - self.local_fraction}
        before = sum(route.weight for route in routes)
        weights = [
            parts[side] / size[side] if side else route.weight / before
            for side, route in zip(sides, routes, strict=True)
        ]
        after = sum(weights)
        split: list[Route] = []
        others: list[Route] = []
        for side, route, weight in zip(sides, routes, weights, strict=True):
            is_same = math.isclose(weight / after, route.weight / before, rel_tol=WEIGHT_TOLERANCE)
            weighed = msgspec.structs.replace(
                route, weight=weight, is_split=side is not None and not is_same
            )
            (split if side else others).append(weighed)
        return split + others

    def _side(self, names: Collection[str], route: Route) -> Side | None:
        """Where a route counts. An address that is both local and remote is local."""
        if not route.weight:
            return None
        if any(_gives(deployment, names, route) for deployment in self.local):
            return "local"
        if any(_gives(deployment, names, route) for deployment in self.remote):
            return "remote"
        return None

    def judge(
        self, declared: Mapping[str, str], models: Mapping[str, Model], problems: Problems
    ) -> None:
        """Warn of deployments that name what does not exist.

        `declared` leads from every id and alias to its id, `models` are those that are served: of
        others it is not known which addresses they have.
        """
        for path, deployment in self._deployments():
            for index, name in enumerate(deployment.models):
                if name not in declared:
                    problems.warning(
                        f"{path}.models[{index}]",
                        f"there is no model {name!r}",
                        did_you_mean(name, declared),
                    )
            strange = [
                name
                for name in deployment.models
                if (model := models.get(declared.get(name, "")))
                and not any(_gives(deployment, {name}, route) for route in model.routes)
            ]
            if strange:
                problems.warning(
                    f"{path}.endpoint",
                    f"is the base_url of no route of {', '.join(map(repr, strange))}",
                    "write it as in models.yaml, with its path",
                )

    def _deployments(self) -> Iterator[tuple[str, Deployment]]:
        for key, deployments in (
            ("local_deployment", self.local),
            ("remote_deployment", self.remote),
        ):
            for index, deployment in enumerate(deployments):
                yield f"{key}[{index}]", deployment


def _gives(deployment: Deployment, names: Collection[str], route: Route) -> bool:
    return route.base_url == deployment.endpoint and any(
        name in deployment.models for name in names
    )
