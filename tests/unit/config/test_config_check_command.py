from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from gateway.commands import check
from gateway.config import reference

ROOT = Path(__file__).parents[3]
MODELS = 'models: [{id: m, name: M, provider: vllm, base_url: "http://localhost:1"}]'


def concord(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    check.add_parser(parser.add_subparsers())
    args = parser.parse_args(["check", *arguments])
    return int(args.run(args))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"CONCORD_SECRET": "s"})


@pytest.mark.parametrize(
    "folder",
    [ROOT / "config", *sorted((ROOT / "config" / "examples").iterdir())],
    ids=lambda folder: folder.name,
)
def test_the_shipped_configurations_pass(folder: Path, capsys) -> None:
    assert concord(str(folder), "--allow-missing-env") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("ok: ")


def test_the_reference_page_is_what_the_schema_says() -> None:
    assert (ROOT / "config" / "README.md").read_text(encoding="utf-8") == reference.render()


def test_every_key_has_a_line_in_the_reference() -> None:
    assert "|  |  |" not in reference.render().replace("| meaning |", "")
    assert not [line for line in reference.render().splitlines() if line.endswith("|  |")]


def test_a_problem_is_one_line_and_exit_1(tmp_path: Path, capsys) -> None:
    # Given
    (tmp_path / "models.yaml").write_text(MODELS.replace("}]", ", wieght: 1}]"), encoding="utf-8")

    # When
    code = concord(str(tmp_path))

    # Then
    assert code == 1
    assert capsys.readouterr().out.splitlines() == [
        "error models.yaml: models[0].wieght: unknown key (did you mean weight?)",
        "not ok: models 1, routes 1, 1 error, 0 warnings",
    ]


def test_json_has_a_fixed_shape(tmp_path: Path, capsys) -> None:
    # Given
    (tmp_path / "models.yaml").write_text(MODELS + "\nmodel: []", encoding="utf-8")

    # When
    code = concord(str(tmp_path), "--json")

    # Then
    assert code == 1
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "problems": [
            {
                "severity": "error",
                "file": "models.yaml",
                "path": "model",
                "message": "unknown key",
                "hint": "did you mean models?",
            }
        ],
        "models": 1,
        "routes": 1,
    }


def test_a_folder_that_is_none_is_a_usage_error(tmp_path: Path, capsys) -> None:
    # Given
    file = tmp_path / "config.yaml"
    file.write_text(MODELS, encoding="utf-8")

    # Then
    assert concord(str(tmp_path / "nowhere")) == 2
    assert concord(str(file)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "does not exist" in captured.err
    assert "give its folder" in captured.err


def test_unset_variables_fail_unless_allowed(tmp_path: Path) -> None:
    # Given
    (tmp_path / "models.yaml").write_text(
        MODELS.replace("}]", ', api_key: "${NOPE}"}]'), encoding="utf-8"
    )

    # Then
    assert concord(str(tmp_path)) == 1
    assert concord(str(tmp_path), "--allow-missing-env") == 0
