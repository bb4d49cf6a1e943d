"""The image holds what the wheel needs and no more, from pinned parts, without rights."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import PurePosixPath
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.unit.project.deployment import DEPLOY, ROOT, dockerfile, options

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SPELT = [word for word, _ in dockerfile()]
LAST_STAGE = dockerfile()[len(SPELT) - 1 - SPELT[::-1].index("FROM") :]
REFRESH = """run: echo 'hatchling>=1.27' | uv pip compile - --universal --generate-hashes \
--no-header --no-annotate -o deploy/requirements-build.txt"""


def said(instruction: str) -> str:
    """What the last stage says once."""
    [rest] = [rest for word, rest in LAST_STAGE if word == instruction]
    return rest


def copied() -> set[str]:
    """What is taken from the build context."""
    copies = [shlex.split(rest) for word, rest in dockerfile() if word == "COPY"]
    return {source for *sources, _ in copies if "--from" not in sources[0] for source in sources}


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a path into the build context: its last word on it counts."""
    sent = True
    parents = {str(one) for one in (PurePosixPath(path), *PurePosixPath(path).parents)}
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        pattern = line.removeprefix("!")
        if pattern == "*" or pattern in parents:
            sent = line.startswith("!")
    return sent


def test_what_is_copied_exists_and_is_in_the_build_context() -> None:
    assert copied()
    for source in copied():
        assert (ROOT / source).exists(), source
        assert is_sent(source), source


@pytest.mark.parametrize("path", [".env", ".git", "tests", "deploy/compose", "config/keys.yaml"])
def test_the_build_context_holds_nothing_else(path: str) -> None:
    assert not is_sent(path)


def test_all_that_the_wheel_is_made_of_is_copied() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    project = PROJECT["project"]
    parts = {*wheel["packages"], *wheel["force-include"]}
    parts |= {"pyproject.toml", project["readme"], *project["license-files"]}
    assert parts <= copied()


def test_packages_are_installed_by_hash_and_nothing_else_is_fetched() -> None:
    runs = [part for word, rest in dockerfile() if word == "RUN" for part in rest.split(" && ")]
    pips = [shlex.split(run) for run in runs if run.startswith("pip ")]
    assert len(pips) == 4
    for words in pips:
        by_hash = "--require-hashes" in words and "-r" in words
        is_ours = "--no-deps" in words and {"--no-index", "--no-build-isolation"} & set(words)
        assert by_hash or is_ours, words


def test_the_build_backend_is_pinned_to_a_version_that_is_allowed() -> None:
    text = (DEPLOY / "requirements-build.txt").read_text("utf-8")
    entries = re.sub(r"\\\n\s*", " ", text).splitlines()
    assert all(" --hash=sha256:" in entry for entry in entries), REFRESH
    assert "://" not in text
    pins = {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in (Requirement(entry.partition(" --hash")[0]) for entry in entries)
    }
    for asked in map(Requirement, PROJECT["build-system"]["requires"]):
        assert asked.specifier.contains(pins[canonicalize_name(asked.name)]), REFRESH


def test_the_base_is_pinned_and_new_enough() -> None:
    bases = {rest.split(" AS ")[0] for word, rest in dockerfile() if word == "FROM"}
    [base] = bases
    found = re.fullmatch(r"python:(\d+\.\d+)-slim-[a-z]+", base)
    assert found
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(f"{found[1]}.9")


def test_it_runs_the_command_itself_without_a_shell_and_without_rights() -> None:
    assert json.loads(said("ENTRYPOINT")) == ["concord"]
    assert "concord" in PROJECT["project"]["scripts"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", said("USER"))
    installs = [n for n, (word, rest) in enumerate(LAST_STAGE) if "pip install" in rest]
    assert max(installs) < [word for word, _ in LAST_STAGE].index("USER")


def test_by_itself_it_serves_the_mounted_configuration_on_the_port_it_names() -> None:
    command = json.loads(said("CMD"))
    assert command[0] == "serve"
    assert options(command) == {"--config": "/etc/concord", "--host": "0.0.0.0"}
    usual = re.search(r'"--port".*default=(\d+)', (ROOT / "gateway/commands/serve.py").read_text())
    assert usual
    assert said("EXPOSE") == usual[1]
    assert f"'127.0.0.1', {usual[1]}," in said("HEALTHCHECK")
