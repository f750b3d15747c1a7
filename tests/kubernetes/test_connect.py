"""The operator uses the cluster of the kubeconfig that it was given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.guests.kubernetes import connect


async def test_the_operator_connects_to_the_cluster_of_the_named_kubeconfig(
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


async def test_a_kubeconfig_that_does_not_exist_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    with pytest.raises(InvalidRequest, match="no cluster is known here"):
        async with connect(str(tmp_path / "missing.conf")):
            pass


@pytest.mark.parametrize(
    "text", ["a: [", "- a\n- b\n", "5", "clusters: 3\ncurrent-context: x\n", "\x00", ""]
)
async def test_a_file_that_is_no_kubeconfig_is_an_error(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    path = tmp_path / "broken.conf"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=r"is not a kubeconfig|no cluster is known"):
        async with connect(str(path)):
            pass
