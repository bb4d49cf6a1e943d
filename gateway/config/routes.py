"""One route of models.yaml to a `Route`: what it inherits, and whether it can be served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.config import kinds
from gateway.config.addresses import judge_base_url
from gateway.config.cooldown import cooldown_rules
from gateway.config.drafts import RouteDraft, Surroundings
from gateway.config.limits import endpoint_limits
from gateway.config.location import locate
from gateway.config.models_schema import ModelEntry, Pricing, RouteEntry
from gateway.config.prices import as_text, judge_prices
from gateway.config.problems import Problems, did_you_mean
from gateway.config.upstream_keys import read_keys
from gateway.core.prices import Prices
from gateway.core.route import Route


class RouteBuilder:
    """Builds the routes of one model."""

    def __init__(
        self,
        model: ModelEntry,
        path: str,
        tree: Mapping[str, Any],
        around: Surroundings,
        problems: Problems,
        *,
        cooldown_policy: str,
    ) -> None:
        self.model = model
        self.path = path
        self.around = around
        self.problems = problems
        self.cooldown_policy = cooldown_policy
        self.api_keys = read_keys(model.api_key, model.api_keys, tree, path, problems)
        self.timeouts = model.timeouts.over(around.timeouts) if model.timeouts else around.timeouts

    def build(self, draft: RouteDraft) -> Route | None:
        """Return the route, or `None` when it cannot be served."""
        entry, model = draft.entry, self.model
        if entry is None:
            return None
        kind = self._kind(entry, draft.path)
        base_url = self._base_url(entry, draft.path)
        has_keys = "api_key" in draft.tree or "api_keys" in draft.tree
        api_keys = read_keys(entry.api_key, entry.api_keys, draft.tree, draft.path, self.problems)
        if entry.pricing:
            judge_prices(entry.pricing, f"{draft.path}.pricing", self.problems)
        if kind is None or base_url is None:
            return None

        def inherited(key: str, default: Any) -> Any:
            own = getattr(entry, key)
            value = getattr(model, key) if own is None else own
            return default if value is None else value

        return Route(
            model_id=model.id,
            location=entry.location
            or locate(
                kind,
                base_url,
                host_id=self.around.host_id,
                shared_redis=self.around.shared_redis,
            ),
            provider=entry.provider or model.provider,
            kind=kind,
            base_url=base_url,
            upstream_model=inherited("provider_model_id", model.id),
            weight=entry.weight,
            configured_weight=entry.weight,
            api_keys=api_keys if has_keys else self.api_keys,
            context_length=inherited("context_length", None),
            max_output_length=inherited("max_output_length", None),
            input_modalities=frozenset(inherited("input_modalities", ("text",))),
            extra_body=inherited("extra_body", {}),
            include_usage=inherited("include_usage", True),
            priority_scheduling=inherited("priority_scheduling", False),
            starts_when_used=inherited("on_demand", False),
            recovery_probes=inherited("recovery_probes", self.around.recovery_probes),
            transport=inherited("transport", "http1"),
            limits=endpoint_limits(inherited),
            prices=Prices.of(as_text(inherited("pricing", Pricing()))),
            cooldown=cooldown_rules(self.cooldown_policy, entry, model, self.around),
            timeouts=entry.timeouts.over(self.timeouts) if entry.timeouts else self.timeouts,
        )

    def _kind(self, entry: RouteEntry, path: str) -> str | None:
        if entry.kind is not None:
            kind, path = entry.kind, f"{path}.kind"
        elif self.model.kind is not None:
            kind, path = self.model.kind, f"{self.path}.kind"
        else:
            kind, path = self.model.provider, f"{self.path}.provider"
        if kinds.is_spoken(kind):
            return kind
        if kind in kinds.NOT_YET:
            self.problems.error(
                path,
                f"this version does not speak {kind}",
                "use the provider's OpenAI-compatible base_url with kind: openai_compat",
            )
        elif kind.startswith("openrouter["):
            self.problems.error(
                path, f"malformed kind {kind!r}", "openrouter[slug], the slug of A-Z a-z 0-9 _ . -"
            )
        else:
            hint = did_you_mean(kind, (*kinds.SPOKEN, *kinds.NOT_YET))
            if path.endswith(".provider"):
                hint = f"{hint + ' else ' if hint else ''}add kind: openai_compat"
            self.problems.error(
                path, f"unknown kind {kind!r}", hint or f"known: {', '.join(kinds.SPOKEN)}"
            )
        return None

    def _base_url(self, entry: RouteEntry, path: str) -> str | None:
        if entry.base_url is not None:
            url, path = entry.base_url, f"{path}.base_url"
        elif self.model.base_url is not None:
            url, path = self.model.base_url, f"{self.path}.base_url"
        else:
            self.problems.error(f"{path}.base_url", "is required", "give it here or on the model")
            return None
        if wrong := judge_base_url(url):
            self.problems.error(path, *wrong)
            return None
        return url.rstrip("/")
