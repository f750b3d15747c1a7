"""Which cluster the operator asks: the one of the kubeconfig that it was told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

from podwright.errors import InvalidRequest, Unavailable
from podwright.kubernetes import KubeApi, connect


async def test_the_cluster_of_a_kubeconfig_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is set by what is tried.
    monkeypatch.setenv("KUBECONFIG", "")
    cluster = {"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [cluster],
        "users": [{"name": "lab", "user": {"token": "t"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    }
    named = tmp_path / "named.conf"
    named.write_text(json.dumps(whole))
    async with connect(str(named)) as kube:
        assert kube.api.configuration.host == "https://127.0.0.1:1"


async def test_an_account_that_has_no_name_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the operator's in its pod, whose uid is no user's of the image: kopf would ask for one."""

    async def spawned(*, identity: Any = None, **_: Any) -> None:
        assert identity

    monkeypatch.setattr("kopf.operator", spawned)
    api: Any = None
    with pytest.raises(Unavailable, match="the watch of the API server ended"):
        await KubeApi(api).watch(lambda *_: None)


async def test_in_a_cluster_without_dns_it_watches_by_the_address_of_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def spawned(*, registry: Any, settings: Any, **_: Any) -> None:
        (handler,) = registry._activities.get_all_handlers()
        asked.append((await handler.fn(settings=settings)).server)

    monkeypatch.setattr("kopf.operator", spawned)
    account = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="t")
    monkeypatch.setattr("kopf.login_with_service_account", lambda **_: account)
    api: Any = SimpleNamespace(configuration=SimpleNamespace(host="https://10.96.0.1:443"))
    with pytest.raises(Unavailable, match="the watch of the API server ended"):
        await KubeApi(api, inside=True).watch(lambda *_: None)
    assert asked == ["https://10.96.0.1:443"]


async def test_no_such_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    with pytest.raises(InvalidRequest, match="no cluster is known here"):
        async with connect(str(tmp_path / "missing.conf")):
            pass
