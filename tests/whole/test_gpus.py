"""GPUs from the driver's library to the program that uses them: the real commands, one stand-in."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.errors import Denied
from podwright.wire import AGENT_SOCKET_VARIABLE
from tests.whole.conftest import Pod


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pod]:
    """A server on a machine with 8 GPUs, told nothing of them."""
    described = tmp_path / "gpus.toml"
    described.write_text('gpus = 8\nname = "NVIDIA H100 80GB HBM3"\nnvlinks = 18\n')
    monkeypatch.setenv("PODWRIGHT_STANDIN_NVML", str(described))
    pod = Pod(tmp_path)
    pod.start()
    yield pod
    pod.stop()


def test_each_instance_sees_its_own_gpus_alone(node: Pod) -> None:
    node.run("vipu", "create", "partition", "other", "--size", "2")
    ran = node.run(
        "poprun",
        *("--num-instances", "3", "--num-replicas", "3", "--ipus-per-replica", "2"),
        *("--vipu-partition", "mine", "--update-partition", "yes"),
        *(
            "sh",
            "-c",
            'echo "$RANK $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES ${PODWRIGHT_GPUS-}."',
        ),
    )
    assert ran.code == 0, ran.err
    seen = {}
    for line in ran.out.splitlines():
        rank, cuda, nvidia, left = line.split()[-4:]
        assert (cuda, left) == (nvidia, ".")
        seen[int(rank)] = cuda.split(",")
    inventory = json.loads(node.run("podwright", "inventory", "--json").out)
    uuids = [gpu["uuid"] for gpu in inventory["gpus"]]
    assert seen == {0: uuids[2:4], 1: uuids[4:6], 2: uuids[6:8]}


def test_vipu_says_what_the_gpus_are_and_who_has_them(node: Pod) -> None:
    node.run("vipu", "create", "partition", "p1", "--size", "3")
    attributes = json.loads(node.run("vipu", "list", "ipu-attrs", "--json").out)
    assert "NVIDIA H100 80GB HBM3" in json.dumps(attributes)
    shown = node.run("gc-info", "-l")
    assert "Multi GPU" in shown.out
    assert "GPU#: [2]" in shown.out
    assert node.run("gc-monitor").out.count(" free ") == 3
    refused = node.run("vipu", "create", "partition", "p2", "--size", "6")
    assert refused.code != 0
    assert "6 GPUs are asked for and 5 are free" in refused.err


def test_slices_are_given_to_those_who_ask(node: Pod, tmp_path: Path) -> None:
    node.stop()
    node.storage = tmp_path / "cut.db"
    (tmp_path / "gpus.toml").write_text(
        'gpus = 2\n[[gpu]]\nindex = 0\nmig = "on"\nslices = ["1g.10gb", "1g.10gb", "3g.40gb"]\n'
    )
    node.start()
    node.good("vipu", "create", "partition", "whole", "--size", "1")
    refused = node.run("vipu", "create", "partition", "more", "--size", "1")
    assert "1 GPU is asked for and 0 are free" in refused.err
    node.good("vipu", "create", "partition", "cut", "--size", "2", "--profile", "1g.10gb")
    refused = node.run("vipu", "create", "partition", "more", "--size", "1", "--profile", "1g.10gb")
    assert "no machine has more than 0 free" in refused.err
    node.stop()
    node.start()
    ran = node.run(
        *("poprun", "--vipu-partition", "cut", "--num-instances", "2", "--num-replicas", "2"),
        *("sh", "-c", "echo $CUDA_VISIBLE_DEVICES"),
    )
    assert ran.code == 0, ran.err
    (inventory,) = [json.loads(node.good("podwright", "inventory", "--json"))]
    slices = [s["uuid"] for s in inventory["gpus"][0]["slices"] if s["profile"] == "1g.10gb"]
    assert sorted(line.split()[-1] for line in ran.out.splitlines()) == sorted(slices)
    ran = node.run(
        *("poprun", "--vipu-partition", "cut", "--num-instances", "1", "--num-replicas", "1"),
        *("--ipus-per-replica", "2", "true"),
    )
    assert ran.code != 0
    assert "an instance would have several slices of GPUs" in ran.err
    assert node.json("vipu", "list", "leases") == []


def test_nothing_is_started_before_the_agent_has_confined_it(node: Pod, tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    asked: list[bytes] = []

    def refuse() -> None:
        line, _ = listener.accept()
        with line:
            asked.append(line.recv(100))
            line.sendall(json.dumps(Denied("it is another's").to_json()).encode() + b"\n")

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(60)
        agent = threading.Thread(target=refuse)
        agent.start()
        ran = node.run(
            *("poprun", "--vipu-partition", "mine", "--num-instances", "2", "--num-replicas", "2"),
            *("echo", "begun"),
            environ={AGENT_SOCKET_VARIABLE: str(path)},
        )
        agent.join()
    assert asked == [b"mine\n"]
    assert (ran.code, ran.out) == (126, "")
    assert "it is another's" in ran.err
    assert node.partitions() == {}
