"""A rig per store: every test here runs on a Redis of today, an old one and the embedded one."""

from __future__ import annotations

import pytest

from gateway.state.keys import Keys
from tests.lua.caller_rig import CallerRig
from tests.lua.rig import Rig
from tests.redis_servers import ScriptStore


@pytest.fixture
def rig(store_server: ScriptStore, keys: Keys) -> Rig:
    """The scripts of a fresh model."""
    return Rig(store_server, keys)


@pytest.fixture
def callers(store_server: ScriptStore, keys: Keys) -> CallerRig:
    """The scripts of callers' limits under a fresh tag."""
    return CallerRig(store_server, keys)
