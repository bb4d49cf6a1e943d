"""The deployment files as the tests read them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct

from gateway.__main__ import main

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = (ROOT / "docker-compose.yml").read_text("utf-8")
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:[-?])([^}]*))?\}|(.?))")


class Variable(Struct, frozen=True):
    """A `${NAME}` of docker-compose.yml: `operator` is `:-` (default), `:?` (required) or ""."""

    name: str
    operator: str
    rest: str


def variables() -> list[Variable]:
    """Every one that docker-compose.yml asks its environment for."""
    return [Variable(m[2], m[3] or "", m[4] or "") for m in _VARIABLE.finditer(COMPOSE) if m[2]]


def required() -> dict[str, str]:
    """A value for each variable without a default."""
    return {one.name: f"{one.name.lower()}-0123" for one in variables() if one.operator != ":-"}


def compose(env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """docker-compose.yml with its variables put in."""
    given = required() if env is None else env

    def put_in(match: re.Match[str]) -> str:
        escaped, name, operator, rest, stray = match.groups()
        assert stray is None, f"a $ that is neither $$ nor ${{NAME}}: {match[0]!r}"
        if escaped:
            return "$"
        value = given.get(name) or (rest if operator == ":-" else "")
        assert value, f"{name} has no value"
        return value

    parsed: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(put_in, COMPOSE))
    return parsed


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments, the values of ARG put in."""
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / "Dockerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]
    values = dict(rest.split("=", 1) for word, rest in found if word == "ARG")
    for name, value in values.items():
        found = [(word, rest.replace(f"${{{name}}}", value)) for word, rest in found]
    return found


def healthcheck(service: Mapping[str, Any]) -> list[str] | None:
    """The command that asks after a service's health, its own or its image's, without `CMD`."""
    if "healthcheck" in service:
        command: list[str] = service["healthcheck"]["test"]
    elif "build" in service:
        [line] = [rest for word, rest in dockerfile() if word == "HEALTHCHECK"]
        command = ["CMD", *json.loads(line.partition(" CMD ")[2])]
    else:
        return None
    assert command[0] == "CMD", "in exec form, for not every image has a shell"
    return command[1:]


def options(command: list[str]) -> dict[str, str]:
    """`--name value` pairs of a command line."""
    return dict(zip(command[1::2], command[2::2], strict=True))


def is_understood(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> bool:
    """Put a command line to the real parser, with one word too many, lest it be carried out."""
    monkeypatch.setattr(sys, "argv", ["concord", *command, "--one-too-many"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err.splitlines()[-1]
    return said == "concord: error: unrecognized arguments: --one-too-many"


def listed_in(name: str, pattern: str) -> list[str]:
    """All that a pattern's group finds in a file of the folder."""
    return re.findall(pattern, (DEPLOY / name).read_text("utf-8"), re.M)
