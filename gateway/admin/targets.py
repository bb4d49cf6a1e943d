"""From an operator's words to models and routes; who misses is told what is near."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gateway.config.result import Config
from gateway.core.route import Model, Route
from gateway.errors import NotFound

_SHOWN = 3
_CUTOFF = 0.5


class NoSuchTarget(NotFound):
    """The configuration has no such model, endpoint or label."""


def any_model(config: Config, name: str) -> Model:
    """The model that an id or alias stands for. Raises `NoSuchTarget`."""
    model = config.models.get(config.names.get(name, ""))
    if model is None:
        raise NoSuchTarget(f"There is no model '{name}'.{near(name, config.names)}", param="model")
    return model


def model_of(config: Config, model_id: str) -> Model:
    """The model of this id: state is kept under ids, not aliases. Raises `NoSuchTarget`."""
    model = any_model(config, model_id)
    if model.id != model_id:
        raise NoSuchTarget(f"'{model_id}' is an alias: say '{model.id}'.", param="model")
    return model


def split(config: Config, path: str) -> tuple[Model, str]:
    """Part `<model>/<rest>` at the longest model id, which may hold slashes itself.

    Raises `NoSuchTarget` where no model's id comes first, or nothing after it.
    """
    ids = [model_id for model_id in config.models if path.startswith(f"{model_id}/")]
    if ids:
        model_id = max(ids, key=len)
        if rest := path[len(model_id) + 1 :]:
            return config.models[model_id], rest
        path = model_id
    if path in config.models:
        raise NoSuchTarget(f"Something must follow '{path}/' in the path.")
    head = next((name for name in config.names if path.startswith(f"{name}/")), None)
    # Raises: what comes first is an alias, or nothing that is known.
    return model_of(config, head or path.rpartition("/")[0] or path), ""


def route_of(model: Model, endpoint: str) -> Route | None:
    """The route of a location or of a full endpoint id, `<model>:<location>`."""
    return next((one for one in model.routes if endpoint in (one.location, one.endpoint)), None)


def endpoints_of(model: Model) -> str:
    """A sentence that names a model's endpoints."""
    return f"Its endpoints: {', '.join(route.location for route in model.routes) or 'none'}."


def near(word: str, known: Iterable[str]) -> str:
    """A sentence that names what a misspelt word may have meant, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=_SHOWN, cutoff=_CUTOFF)
    return f" Near: {', '.join(found)}." if found else ""
