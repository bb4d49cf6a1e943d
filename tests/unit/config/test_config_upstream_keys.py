"""Upstream keys: whom they are kept for, and which come from the environment."""

from __future__ import annotations

import pytest

from gateway.core.route import UpstreamKey

MODEL = "{{id: {id}, name: M, provider: {provider}, kind: vllm, base_url: 'https://{id}', {keys}}}"


def models(*entries: tuple[str, str], provider: str = "acme") -> str:
    """Models of one provider, each an id and its keys as written."""
    return "models:\n" + "\n".join(
        "  - " + MODEL.format(id=id, provider=provider, keys=keys) for id, keys in entries
    )


def keys_of(loaded, model_id: str = "m") -> list[str]:
    """`<key>` or `<key>:<role>` of the model's only route."""
    (route,) = loaded.config.models[model_id].routes
    return [
        key.secret if key.min_role == "free" else f"{key.secret}:{key.min_role}"
        for key in route.api_keys
    ]


def test_a_key_may_be_kept_for_a_role_and_each_stands_once(load_texts) -> None:
    text = models(("m", "api_keys: [a, {key: b, min_role: pro}, {key: c}, a]"))

    assert keys_of(load_texts(text)) == ["a", "b:pro", "c"]


@pytest.mark.parametrize(
    "keys",
    ["[{key: a, min_role: pro}, {key: a, min_role: internal}, a]", "[a, {key: a, min_role: pro}]"],
)
def test_the_strictest_role_counts_wherever_a_key_is_written_under_a_provider(
    load_texts, keys: str
) -> None:
    text = models(("m", f"api_keys: {keys}"), ("n", "api_key: a"))
    expected = ["a:internal" if "internal" in keys else "a:pro"]

    loaded = load_texts(text)

    assert keys_of(loaded) == keys_of(loaded, "n") == expected


def test_another_providers_key_of_the_same_text_is_another_key(load_texts) -> None:
    first = models(("m", "api_keys: [{key: a, min_role: pro}]"))
    other = models(("n", "api_key: a"), provider="other").removeprefix("models:\n")

    loaded = load_texts(f"{first}\n{other}")

    assert (keys_of(loaded), keys_of(loaded, "n")) == (["a:pro"], ["a"])


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("acme", "ACME"), ("Acme-Cloud.eu", "ACME_CLOUD_EU"), ("'openrouter[x]'", "OPENROUTER_X")],
)
def test_keys_of_the_provider_in_the_environment_come_after_the_routes_own(
    load_texts, provider: str, variable: str
) -> None:
    env = {f"{variable}_API_KEY{number}": f"e{number}" for number in ("", "1", "2", "20")}

    loaded = load_texts(models(("m", "api_key: own"), provider=provider), env=env)

    assert keys_of(loaded) == ["own", "e", "e1", "e2", "e20"]


def test_a_route_without_keys_has_those_of_the_environment(load_texts) -> None:
    assert keys_of(load_texts(models(("m", "")), env={"ACME_API_KEY": "e"})) == ["e"]


def test_a_route_in_plain_text_gets_them_only_beside_a_key_of_its_own(load_texts) -> None:
    text = models(("m", ""), ("n", "api_key: own")).replace("https:", "http:")

    loaded = load_texts(text, env={"ACME_API_KEY": "e"})

    assert (keys_of(loaded), keys_of(loaded, "n")) == ([], ["own", "e"])


@pytest.mark.parametrize("suffix", ["0", "01", "21", "_1", "S"])
def test_other_variables_are_no_keys(load_texts, suffix: str) -> None:
    loaded = load_texts(models(("m", "api_key: own")), env={f"ACME_API_KEY{suffix}": "e"})

    assert keys_of(loaded) == ["own"]


def test_a_key_that_the_environment_repeats_stays_in_its_place_and_role(load_texts) -> None:
    text = models(("m", "api_keys: [{key: a, min_role: pro}, b]"))

    env = {"ACME_API_KEY": "b", "ACME_API_KEY1": " a ", "ACME_API_KEY2": ""}
    loaded = load_texts(text, env=env)

    assert keys_of(loaded) == ["a:pro", "b"]


def test_a_variable_that_cannot_be_sent_is_an_error_that_does_not_quote_it(load_texts) -> None:
    loaded = load_texts(models(("m", "")), env={"ACME_API_KEY1": "sécret"})

    (problem,) = loaded.errors
    assert (problem.file, problem.path) == ("environment", "ACME_API_KEY1")
    assert "cret" not in str(problem)


@pytest.mark.parametrize(
    ("keys", "path", "message"),
    [
        ("[a, {key: b, min_role: prou}]", "api_keys[1].min_role", "did you mean pro?"),
        ("[a, {kay: b}]", "api_keys[1].kay", "did you mean key?"),
        ("[{min_role: pro}]", "api_keys[0].key", "is required"),
        ("[{key: 'b c'}]", "api_keys[0].key", "printable ASCII"),
        ("[{key: ''}]", "api_keys", "holds no key"),
        ("[7]", "api_keys[0]", "must be a string or a mapping, not a whole number"),
        ("[null]", "api_keys[0]", "is empty"),
        ("{key: a}", "api_keys", "must be a list, not a mapping"),
    ],
)
def test_a_key_that_is_wrong_is_named(load_texts, keys: str, path: str, message: str) -> None:
    loaded = load_texts(models(("m", f"api_keys: {keys}")))

    (problem,) = [one for one in loaded.errors if one.path == f"models[0].{path}"]
    assert message in str(problem)


def test_a_kept_key_whose_variable_is_unset_is_left_out(load_texts) -> None:
    text = models(("m", "api_keys: [{key: '${NOPE}', min_role: pro}, '${KEY}']"))

    loaded = load_texts(text, env={"KEY": "k"}, serving=True)

    assert keys_of(loaded) == ["k"]
    assert "models[0].api_keys[0].key" in [problem.path for problem in loaded.warnings]


def test_the_role_is_in_the_digest_of_the_configuration_and_the_key_is_not(load_texts) -> None:
    def digest(keys: str, **env: str) -> str:
        return load_texts(models(("m", f"api_keys: {keys}")), env=env).config.digest

    pro = digest("[{key: a, min_role: pro}]")
    assert pro == digest("[{key: b, min_role: pro}]") == digest("[{key: a, min_role: pro}]", K="x")
    assert pro != digest("[{key: a, min_role: internal}]")


def test_a_key_never_shows_itself() -> None:
    assert repr(UpstreamKey("sk-secret", "pro")) == "UpstreamKey(min_role='pro')"
    assert "sk-secret" not in f"{UpstreamKey('sk-secret')!s} {[UpstreamKey('sk-secret')]}"
