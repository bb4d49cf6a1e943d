"""A rig per store: every test here runs on a Redis of today, an old one and the embedded one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.state.keys import Keys
from tests.lua.caller_rig import CallerRig
from tests.lua.gate_rig import GateRig
from tests.lua.pool_rig import PoolRig
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


@pytest.fixture
def gate(store_server: ScriptStore, keys: Keys) -> Iterator[GateRig]:
    """The scripts of a fresh gate: two places, to begin with."""
    gate = GateRig(store_server, keys)
    yield gate
    gate.close()


@pytest.fixture
def pool(store_server: ScriptStore, keys: Keys) -> PoolRig:
    """The scripts of a fresh provider's keys."""
    return PoolRig(store_server, keys)
