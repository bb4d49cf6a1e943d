"""One folder per message: what is wrong, and exactly what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import load

M = "models: [{id: m, name: M, provider: vllm, "
BAD = Path(__file__).parents[2] / "fixtures" / "config" / "bad"


@pytest.mark.parametrize("folder", sorted(BAD.iterdir()), ids=lambda folder: folder.name)
def test_a_broken_configuration_is_refused_with_these_lines(folder: Path) -> None:
    # When
    loaded = load(folder, {"CONCORD_SECRET": "s"})

    # Then
    expected = (folder / "expected.txt").read_text(encoding="utf-8").splitlines()
    assert [str(problem) for problem in loaded.errors] == expected
    assert expected
    assert loaded.config is None


def test_all_problems_of_all_files_show_at_once(load_texts) -> None:
    # When
    loaded = load_texts(
        """
        models:
          - {id: a, name: A, provider: vlm, base_url: "ftp://x", wieght: 1}
          - id: b
            name: B
            provider: vllm
            required_role: root
            route:
              - {weight: -1, base_url: "http://a:1"}
              - {weight: x, kind: gemini}
        """,
        routing="auth: off\nstate: {heartbeat_s: 9}",
        keys="keys: [{id: a}, {id: a, key: abcdefgh, models: [zzz]}]",
    )

    # Then
    assert {(problem.file, problem.path) for problem in loaded.errors} == {
        ("models.yaml", "models[0].wieght"),
        ("models.yaml", "models[0].provider"),
        ("models.yaml", "models[0].base_url"),
        ("models.yaml", "models[1].required_role"),
        ("models.yaml", "models[1].route[0].weight"),
        ("models.yaml", "models[1].route[1].weight"),
        ("models.yaml", "models[1].route[1].kind"),
        ("models.yaml", "models[1].route[1].base_url"),
        ("routing.yaml", "auth"),
        ("routing.yaml", "state.replica_ttl_s"),
        ("keys.yaml", "keys[0]"),
        ("keys.yaml", "keys[1].id"),
        ("keys.yaml", "keys[1].models[0]"),
    }


@pytest.mark.parametrize(
    "models",
    [
        M + "base_url: 'https://u:hunter2secret@h', api_key: hunter2secret}]",
        M + "kind: '${S}', base_url: '${S}', api_key: '${S}'}]",
        M + "required_role: '${S}', router: '${S}'}]",
        M + "api_key: hunter2secret, api_keys: [hunter2secret]}]",
        M + "api_key: 'hunter2secret\u00fc'}]",
        M + "api_key: hunter2secret: x}]",
    ],
)
def test_no_message_repeats_a_secret(load_texts, models: str) -> None:
    # When
    loaded = load_texts(models, env={"S": "hunter2secret"})

    # Then
    assert loaded.errors
    assert not any("hunter2secret" in str(problem) for problem in loaded.problems)


@pytest.mark.parametrize("name", ["CONCORD_ADMIN_KEY", "CONCORD_SECRET"])
def test_variables_that_are_no_text_are_refused(load_texts, name: str) -> None:
    loaded = load_texts(M + "base_url: 'http://a'}]", env={name: "sk-\udcff"})
    assert [(problem.file, problem.path) for problem in loaded.errors] == [("environment", name)]


def test_half_characters_come_from_variables_too_and_no_message_holds_one(load_texts) -> None:
    loaded = load_texts(
        M + "base_url: '${A}'}]",
        env={"A": "http://\udcff", "ROUTING_CONFIG_PATH": "/nowhere/\udcff"},
    )
    assert [problem.path for problem in loaded.errors] == [
        "models[0].base_url",
        "ROUTING_CONFIG_PATH",
    ]
    assert all(str(problem).encode() for problem in loaded.errors)


def test_a_folder_above_configurations_is_told_of_them(tmp_path: Path) -> None:
    # Given
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "models.yaml").touch()

    # When
    loaded = load(tmp_path, {})

    # Then
    assert loaded.errors[0].hint == f"there is one in {tmp_path / 'a'}, {tmp_path / 'b'}"


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    # Given
    (tmp_path / "models.yaml").write_bytes(b"models: \xff\xfe")
    (tmp_path / "routing.yaml").mkdir()

    # When
    loaded = load(tmp_path, {})

    # Then
    assert [str(problem) for problem in loaded.errors] == [
        "error models.yaml: is not UTF-8 text",
        "error routing.yaml: cannot be read: Is a directory",
    ]
