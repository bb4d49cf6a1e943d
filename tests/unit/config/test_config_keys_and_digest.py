from __future__ import annotations

import hashlib

MODELS = """
models:
  - {id: m, name: M, provider: vllm, base_url: "http://localhost:1", aliases: [x], api_key: "${K}"}
"""


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_without_a_key_file_there_are_no_keys_and_an_empty_one_admits_nobody(load_texts) -> None:
    env = {"K": "upstream"}
    assert load_texts(MODELS, env=env).config.keys is None
    assert load_texts(MODELS, keys="keys: []", env=env).config.keys == ()


def test_keys_are_known_by_their_digest(load_texts) -> None:
    # When
    loaded = load_texts(
        MODELS,
        keys=f"""
        keys:
          - {{id: a, key: "${{A}}", role: pro, models: [x, m]}}
          - {{id: b, key_sha256: {sha("bbb").upper()}}}
        """,
        env={"K": "upstream", "A": "sk-aaa", "CONCORD_ADMIN_KEY": "sk-admin"},
    )

    # Then
    first, second = loaded.config.keys
    assert (first.id, first.key_sha256, first.role) == ("a", sha("sk-aaa"), "pro")
    assert first.models == {"m"}
    assert (second.id, second.key_sha256, second.role) == ("b", sha("bbb"), "free")
    assert second.models is None
    assert loaded.config.admin_key_sha256 == sha("sk-admin")
    assert loaded.config.secret == "s"


def test_a_caller_may_not_hold_the_admin_key(load_texts) -> None:
    loaded = load_texts(
        MODELS, keys="keys: [{id: a, key: same}]", env={"K": "u", "CONCORD_ADMIN_KEY": "same"}
    )
    assert "CONCORD_ADMIN_KEY" in loaded.errors[0].message


def test_keys_without_auth_are_said_to_be_unused(load_texts) -> None:
    loaded = load_texts(
        MODELS, routing="auth: none", keys="keys: [{id: a, key: abc}]", env={"K": "u"}
    )
    assert [problem.file for problem in loaded.warnings] == ["keys.yaml"]


def test_a_missing_secret_is_a_warning(load_texts) -> None:
    loaded = load_texts(MODELS, env={"K": "u", "CONCORD_SECRET": ""})
    assert [problem.path for problem in loaded.warnings] == ["CONCORD_SECRET"]
    assert loaded.config.secret is None


def test_equal_files_give_equal_digests_whatever_secrets_and_hosts_are(load_texts) -> None:
    # When
    here = load_texts(MODELS, env={"K": "one"}).config
    there = load_texts(
        MODELS,
        env={"K": "two", "CONCORD_HOST_ID": "b", "CONCORD_SECRET": "t"},
        redis_url="redis://r",
    ).config

    # Then
    assert here.digest == there.digest
    assert len(here.digest) == 12
    assert int(here.digest, 16) >= 0


def test_a_secret_in_a_file_does_not_enter_the_digest(load_texts) -> None:
    one = load_texts(MODELS.replace("${K}", "sk-one")).config
    two = load_texts(MODELS.replace("${K}", "sk-two")).config
    assert one.digest == two.digest


def test_comments_and_order_do_not_count_but_content_does(load_texts) -> None:
    # Given
    env = {"K": "u"}
    base = load_texts(MODELS, routing="timeout: 1\nhealth_check: 2", env=env).config.digest

    # Then
    assert (
        load_texts(MODELS, routing="# c\nhealth_check: 2\ntimeout: 1", env=env).config.digest
        == base
    )
    assert load_texts(MODELS, routing="timeout: 2\nhealth_check: 2", env=env).config.digest != base
    assert (
        load_texts(
            MODELS,
            routing="timeout: 1\nhealth_check: 2",
            env={**env, "CIRCUIT_FAILURE_THRESHOLD": "7"},
        ).config.digest
        != base
    )
