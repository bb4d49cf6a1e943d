"""Engine tests share one cluster of real engines, which starts within seconds once it is built."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI

from tests.cluster.conftest import own_redis
from tests.engine.installing import LlamaCpp, NotInstalled, install
from tests.engine.llama import LlamaCluster


@pytest.fixture(scope="session")
def llama(request: pytest.FixtureRequest) -> LlamaCpp:
    """llama.cpp and its weights; the first time, progress shows past the captured output."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            return install(print)
    except NotInstalled as error:
        pytest.fail(f"no engine: {error}")


@pytest.fixture(scope="session")
def running(llama: LlamaCpp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCluster]:
    """Two servers, three replicas, nginx."""
    with (
        own_redis() as server,
        LlamaCluster(tmp_path_factory.mktemp("llama"), server.url, llama, {}) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster(running: LlamaCluster) -> LlamaCluster:
    """The running cluster, with all that earlier tests did to it made good."""
    running.reset()
    return running


@pytest.fixture
async def sdk(cluster: LlamaCluster) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client, through nginx."""
    async with cluster.sdk() as client:
        yield client
