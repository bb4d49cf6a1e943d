"""The runbook explains every alarm that the code can raise, and no other."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from tests.redis_servers import missing
from tests.unit.project.deployment import DEPLOY, ROOT, is_understood, required

README = (DEPLOY / "README.md").read_text("utf-8")
LEVELS = ("debug", "info", "warning", "error", "critical")
SOURCES = {
    path: path.read_text("utf-8")
    for package in ("gateway", "coordinator")
    for path in (ROOT / package).rglob("*.py")
}


class Logged(Struct, frozen=True):
    """A place that logs by name. `name` is a regular expression; `level` "" is found out there."""

    name: str
    level: str

    def is_explained(self, rows: dict[str, str]) -> bool:
        """Whether a row is for it, and of its level."""
        return any(
            re.fullmatch(self.name, event) and self.level in ("", level)
            for event, level in rows.items()
        )


def rows() -> dict[str, str]:
    """Event -> level, as the runbook's table has them."""
    return dict(listed())


def listed() -> list[tuple[str, str]]:
    """The same as pairs."""
    section = README.partition("## What each alarm means")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(\w+)` \| (\w+) \| [^|]+ \| [^|]+ \|$", section, re.M)
    assert len(found) == section.count("\n|") - 2, "a row that cannot be read"
    return found


def logged(path: Path) -> Iterator[Logged]:
    """What a module logs by a name that is written there."""
    for node in ast.walk(ast.parse(SOURCES[path])):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = ast.unparse(node.func)
        if called == "event" and "gateway.telemetry.logs import" in SOURCES[path]:
            level = "info"
            for given in (word.value for word in node.keywords if word.arg == "level"):
                level = given.attr.lower() if isinstance(given, ast.Attribute) else ""
                level = level if level in LEVELS else ""
        elif called in ("LOGGER.error", "LOGGER.warning"):
            level = called.removeprefix("LOGGER.")
        else:
            continue
        if isinstance(node.args[0], ast.Constant | ast.JoinedStr):
            yield Logged(pattern(node.args[0]), level)


def pattern(name: ast.Constant | ast.JoinedStr) -> str:
    """A regular expression for a name, of which parts may be put in when it is logged."""
    parts = name.values if isinstance(name, ast.JoinedStr) else [name]
    return "".join(
        re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w+" for p in parts
    )


def test_every_alarm_of_the_code_has_a_row() -> None:
    found = {one for path in SOURCES for one in logged(path)}
    alarms = {one for one in found if one.level not in ("info", "debug")}
    assert len(alarms) >= 6
    assert not {one for one in alarms if not one.is_explained(rows())}


def test_every_event_has_one_row() -> None:
    assert len(listed()) == len(rows())


def test_every_row_is_of_an_event_of_the_code() -> None:
    # Names that are chosen elsewhere than where they are logged are still written somewhere.
    text = "".join(SOURCES.values())
    found = {one.name for path in SOURCES for one in logged(path)}
    for event in rows():
        assert f'"{event}"' in text or any(re.fullmatch(name, event) for name in found), event


def test_the_lines_that_make_the_secrets_make_all_of_them_for_nobody_else_to_read(
    tmp_path: Path,
) -> None:
    if shutil.which("openssl") is None:
        missing("needs openssl")
    [lines] = re.findall(r"^\(umask.*?\)$", README, re.M | re.S)
    subprocess.run(["sh", "-ec", lines], cwd=tmp_path, check=True, timeout=20)
    made = dict(line.split("=") for line in (tmp_path / ".env").read_text().splitlines())
    assert made.keys() == required().keys()
    assert len(set(made.values())) == len(made)
    assert all(re.fullmatch("[0-9a-f]{48}", value) for value in made.values())
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "line", sorted(set(re.findall(r"\bconcord ((?:up|[a-z]+ [^`\n]+|status))`", README)))
)
def test_commands_are_understood(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_understood(shlex.split(line), monkeypatch, capsys)


PATH = r"[ `](/(?:admin|health|livez|readyz|routing)\b(?:/[a-z]+)*)"


@pytest.mark.parametrize("path", sorted(set(re.findall(PATH, README))))
def test_paths_are_served(path: str) -> None:
    code = (text for file, text in SOURCES.items() if file.parent.name in ("api", "admin"))
    assert any(f'"{path}' in text for text in code)


@pytest.mark.parametrize("link", re.findall(r"\]\(#([\w-]+)\)", README))
def test_links_within_the_page_lead_somewhere(link: str) -> None:
    headings = re.findall(r"^#+ (.*)$", README, re.M)
    assert link in {heading.lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w-]+\.(?:conf|cfg|yaml))`", README))))
def test_files_that_are_named_exist(name: str) -> None:
    assert any((place / name).exists() for place in (DEPLOY, DEPLOY / "compose", ROOT))
