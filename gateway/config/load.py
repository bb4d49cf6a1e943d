"""A configuration folder to a `Config`. The only place that reads the process environment.

1. find the files: models.yaml, routing.yaml, keys.yaml, or where the environment says they are;
2. parse YAML, put variables in;
3. judge settings, then models, then keys, collecting problems;
4. without an error among them, there is a `Config`.

Loading never raises for what a file holds. Which strategies exist is an argument, because
strategies live in a layer above.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

from gateway.config.digest import config_digest
from gateway.config.drafts import Surroundings
from gateway.config.expand import Expansion, expand
from gateway.config.keys import Callers, build_callers, sha256
from gateway.config.location import is_shared
from gateway.config.misplaced import keys_in, warn_of_misplaced_keys
from gateway.config.models import Built, build_models
from gateway.config.problems import Problems, did_you_mean, within
from gateway.config.result import Config, Loaded
from gateway.config.schema import RoutingFile, Settings
from gateway.config.settings import settle_settings
from gateway.config.source import parse_yaml
from gateway.config.split import Split
from gateway.config.strategies import STRATEGY_PARAMS
from gateway.config.supplies import judge_supplies
from gateway.config.texts import holds_half_characters, is_text, judge_variable
from gateway.config.upstream_keys import join_providers
from gateway.config.validate import read

MODELS_FILE = "models.yaml"
ROUTING_FILE = "routing.yaml"
KEYS_FILE = "keys.yaml"
_LISTED = 3
"""How many folders a hint names."""

_PATH_VARIABLES: Mapping[str, tuple[str, ...]] = {
    MODELS_FILE: ("MODELS_CONFIG_PATH", "MODELS_CONFIG"),
    ROUTING_FILE: ("ROUTING_CONFIG_PATH", "ROUTING_CONFIG"),
    KEYS_FILE: (),
}


class _File(Struct, frozen=True, kw_only=True):
    """A file as read: `expansion` is `None` when it is absent or no YAML."""

    problems: Problems
    raw: object = None
    expansion: Expansion | None = None
    exists: bool = False


def environment() -> Mapping[str, str]:
    """Return the process environment, for callers that start a command."""
    return os.environ


def load(
    folder: Path,
    env: Mapping[str, str],
    *,
    redis_url: str | None = None,
    serving: bool = False,
    allow_missing_env: bool = False,
    strategies: Mapping[str, type[Struct]] = STRATEGY_PARAMS,
) -> Loaded:
    """Load a configuration folder and report everything found on the way.

    `redis_url` decides whether local endpoints carry this host's id; `None` is the embedded
    store. With `serving`, what needs an unset variable is left out with a warning; without, the
    variable is an error, or a warning under `allow_missing_env`.
    """
    return _Loading(
        env, redis_url, serving=serving, allow_missing_env=allow_missing_env, strategies=strategies
    ).load(folder)


class _Loading:
    def __init__(
        self,
        env: Mapping[str, str],
        redis_url: str | None,
        *,
        serving: bool,
        allow_missing_env: bool,
        strategies: Mapping[str, type[Struct]],
    ) -> None:
        self.env = env
        self.shared_redis = is_shared(redis_url)
        self.serving = serving
        self.allow_missing_env = allow_missing_env
        self.strategies = strategies
        self.problems = Problems("environment")

    def load(self, folder: Path) -> Loaded:
        files = {name: self._file(folder, name) for name in _PATH_VARIABLES}
        for name in ("CONCORD_ADMIN_KEY", "CONCORD_SECRET"):
            judge_variable(name, self.env.get(name, ""), self.problems)
        admin_key = self.env.get("CONCORD_ADMIN_KEY", "").strip()
        admin_key_sha256 = sha256(admin_key) if admin_key and is_text(admin_key) else None
        secret = self.env.get("CONCORD_SECRET", "").strip() or None
        settings = self._settings(files[ROUTING_FILE])
        keeps_callers = settings.affinity.enabled or settings.prefill.enabled
        if secret is None and keeps_callers and not self.serving:
            self.problems.warning(
                "CONCORD_SECRET",
                "is not set: callers and prompts are known in Redis by digests under a salt that "
                "is kept there, too, so that who reads it can test guesses",
                "set it to the same random text on all replicas",
            )
        split = Split(
            local_fraction=settings.local_fraction,
            local=settings.local_deployment,
            remote=settings.remote_deployment,
        )
        built = self._models(folder, files[MODELS_FILE], settings, split)
        if built is not None:
            models = join_providers(built.models, self.env, self.problems)
            built = structs.replace(built, models=models)
            judge_supplies(models.values(), self.quota_fetchers, files[MODELS_FILE].problems)
            split.judge(built.declared, built.models, files[ROUTING_FILE].problems)
        callers = self._callers(files[KEYS_FILE], built, admin_key_sha256)
        if settings.auth == "none" and callers is not None:
            files[KEYS_FILE].problems.warning("", "is not used: auth is none")
        found = tuple(
            problem
            for problems in (*(file.problems for file in files.values()), self.problems)
            for problem in problems.found
        )
        config = None
        if built is not None and not any(problem.severity == "error" for problem in found):
            config = Config(
                models=built.models,
                names=built.names,
                settings=settings,
                quota_fetchers=self.quota_fetchers,
                keys=callers.keys if callers else None,
                users=callers.users if callers else {},
                teams=callers.teams if callers else {},
                admin_key_sha256=admin_key_sha256,
                secret=secret,
                host_id=self._host_id() if self.shared_redis else "",
                digest=config_digest([file.raw for file in files.values()], settings),
            )
        return Loaded(
            config=config,
            problems=found,
            models=built.count if built else 0,
            routes=built.routes if built else 0,
        )

    def _file(self, folder: Path, name: str) -> _File:
        problems = Problems(name)
        path = folder / name
        chosen = next((key for key in _PATH_VARIABLES[name] if self.env.get(key)), None)
        if chosen is not None:
            path = Path(self.env[chosen])
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            if chosen is not None:
                self.problems.error(chosen, f"there is no file at {path}")
            elif name == MODELS_FILE:
                self._note_missing_models(folder, problems)
            return _File(problems=problems)
        except OSError as error:
            problems.error("", f"cannot be read: {error.strerror}")
            return _File(problems=problems, exists=True)
        except UnicodeDecodeError:
            problems.error("", "is not UTF-8 text")
            return _File(problems=problems, exists=True)
        raw = parse_yaml(text, problems)
        if raw is None:
            return _File(problems=problems, exists=True)
        expansion = expand(raw, self.env)
        problems.scrub(expansion.values)
        problems.conceal(keys_in(expansion.tree))
        warn_of_misplaced_keys(expansion.tree, problems)
        for broken in expansion.broken:
            problems.error(broken, "holds a ${ that names no variable", "a literal one is $${")
        for nested in expansion.nested:
            problems.error(nested, "holds a ${ inside a default", "a default is plain text")
        if holds_half_characters(raw, problems) or holds_half_characters(expansion.tree, problems):
            return _File(problems=problems, exists=True)
        return _File(problems=problems, raw=raw, expansion=expansion, exists=True)

    def _note_missing_models(self, folder: Path, problems: Problems) -> None:
        litellm = folder / "config.yaml"
        try:
            is_litellm = re.search(r"(?m)^model_list:", litellm.read_text("utf-8")) is not None
        except (OSError, UnicodeDecodeError):
            is_litellm = False
        if is_litellm:
            problems.error("", *_litellm("config.yaml is a LiteLLM configuration"))
            return
        near = [name for name in ("models.yml", "model.yaml") if (folder / name).exists()]
        below = sorted(str(path.parent) for path in folder.glob(f"*/{MODELS_FILE}"))
        hint = "it lists the models"
        if near:
            hint = f"rename {near[0]}"
        elif below:
            hint = f"there is one in {', '.join(below[:_LISTED])}"
        problems.error("", "there is no such file", hint)

    def _settings(self, file: _File) -> Settings:
        content: RoutingFile | None = None
        if file.expansion is not None:
            self._report_missing(file)
            content = read(file.expansion.tree, RoutingFile, "", file.problems)
        self.quota_fetchers = content.quota_fetchers if content else {}
        return settle_settings(
            content or RoutingFile(), self.env, self.strategies, file.problems, self.problems
        )

    def _models(self, folder: Path, file: _File, settings: Settings, split: Split) -> Built | None:
        if file.expansion is None:
            return None
        tree, problems = file.expansion.tree, file.problems
        if not isinstance(tree, dict):
            problems.error("", "must be a mapping with the key models:")
            return None
        if "model_list" in tree:
            problems.error("model_list", *_litellm("this is a LiteLLM configuration"))
            return None
        for key in tree:
            if key == "auto":
                problems.error("auto", "this version does not serve auto models", "remove it")
            elif key != "models":
                problems.error(key, "unknown key", did_you_mean(key, ["models"]) or "known: models")
        listed = tree.get("models")
        if not isinstance(listed, list):
            problems.error("models", "must be a list" if "models" in tree else "is required")
            return None
        if not listed:
            problems.warning("models", "is empty: every request will be answered 404")
        around = Surroundings(
            timeouts=settings.timeouts,
            default_router=settings.default_router,
            split=split,
            strategies=self.strategies,
            counts_prefill=settings.prefill.enabled,
            recovery_probes=settings.recovery_probes,
            cooldown_time=settings.cooldown_time,
            max_cooldown=settings.max_cooldown,
            host_id=self._host_id(),
            shared_redis=self.shared_redis,
            serving=self.serving,
            allow_missing_env=self.allow_missing_env,
        )
        return build_models(listed, file.expansion.missing, around, problems)

    def _callers(
        self, file: _File, built: Built | None, admin_key_sha256: str | None
    ) -> Callers | None:
        if not file.exists:
            return None
        if file.expansion is None:
            return Callers()
        self._report_missing(file)
        return build_callers(
            file.expansion.tree,
            file.expansion.missing,
            built.declared if built else None,
            admin_key_sha256,
            file.problems,
        )

    def _report_missing(self, file: _File) -> None:
        """Report the unset variables of a file without routes to drop."""
        for one in file.expansion.missing if file.expansion else ():
            message = f"the variable {one.name} is not set"
            if self.serving and file.problems.file == KEYS_FILE and within(one.path, "keys"):
                file.problems.warning(one.path, f"{message}: this key is refused")
            elif self.allow_missing_env:
                file.problems.warning(one.path, message)
            else:
                file.problems.error(one.path, message, f"set it, or write ${{{one.name}:-default}}")

    def _host_id(self) -> str:
        given = self.env.get("CONCORD_HOST_ID", "").strip()
        if given and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", given):
            self.problems.error("CONCORD_HOST_ID", "must be 1 to 64 of A-Z a-z 0-9 . _ -")
        return given or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64]


def _litellm(what: str) -> tuple[str, str]:
    return f"{what}, which this version cannot import", "write the models to models.yaml"
