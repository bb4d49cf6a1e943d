from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Loaded, load

Loader = Callable[..., Loaded]


@pytest.fixture
def load_texts(tmp_path: Path) -> Loader:
    """Load a configuration given as texts; `models`, `routing` and `keys` name the files."""

    def loader(
        models: str,
        *,
        routing: str | None = None,
        keys: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Loaded:
        for name, text in (("models", models), ("routing", routing), ("keys", keys)):
            if text is not None:
                (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
        return load(
            tmp_path, {"CONCORD_SECRET": "s", "CONCORD_HOST_ID": "host-a", **(env or {})}, **options
        )

    return loader
