"""From the name a caller asks for to a model."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.caller import Caller
from gateway.core.route import Model
from gateway.errors import ModelNotFound


def resolve(
    name: str, caller: Caller, *, names: Mapping[str, str], models: Mapping[str, Model]
) -> Model:
    """Find the model an id or alias stands for.

    Raises `ModelNotFound` alike for names that do not exist, have no route in service, or are not
    for this caller: the answers must not tell them apart.
    """
    model = models.get(names.get(name, ""))
    if model is None or not model.routes or not caller.may_use(model):
        raise ModelNotFound(name)
    return model
