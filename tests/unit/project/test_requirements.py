"""The pinned requirements, which images and CI install, are what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RUNTIME = PROJECT["project"]["dependencies"]
DEV = PROJECT["dependency-groups"]["dev"]
REFRESH = """run:
  uv lock
  uv export --no-dev --no-emit-project --no-header --no-annotate -o deploy/requirements.txt
  uv export --no-emit-project --no-header --no-annotate -o deploy/requirements-dev.txt"""


def pinned(name: str) -> dict[str, Requirement]:
    """The pins of a file by canonical name; every one has hashes."""
    text = (ROOT / "deploy" / name).read_text("utf-8")
    pins = {}
    for entry in re.sub(r"\\\n\s*", " ", text).splitlines():
        spec, _, hashes = entry.partition(" --hash=")
        assert re.fullmatch(r"(sha256:[0-9a-f]{64}(\s+--hash=|\s*))+", hashes), entry
        requirement = Requirement(spec)
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), f"not exact: {entry}"
        pins[canonicalize_name(requirement.name)] = requirement
    return pins


@pytest.mark.parametrize(
    ("name", "asked"),
    [("requirements.txt", RUNTIME), ("requirements-dev.txt", RUNTIME + DEV)],
)
def test_every_dependency_is_pinned_to_a_version_it_allows(name: str, asked: list[str]) -> None:
    pins = pinned(name)
    for text in asked:
        requirement = Requirement(text)
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin, f"{requirement.name} is not in {name}; {REFRESH}"
        version = str(pin.specifier).removeprefix("==")
        assert requirement.specifier.contains(version), f"{pin} is not {requirement}; {REFRESH}"


def test_the_image_and_ci_run_the_same_versions() -> None:
    runtime, dev = pinned("requirements.txt"), pinned("requirements-dev.txt")
    for name, pin in runtime.items():
        assert name in dev, f"{name}; {REFRESH}"
        assert dev[name].specifier == pin.specifier, f"{name}; {REFRESH}"


def test_the_image_holds_no_development_tools() -> None:
    tools = {canonicalize_name(Requirement(text).name) for text in DEV}
    assert not tools & pinned("requirements.txt").keys()


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_no_pin_names_a_registry(name: str) -> None:
    assert "://" not in (ROOT / "deploy" / name).read_text("utf-8")
