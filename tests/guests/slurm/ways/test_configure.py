"""`podwright slurm configure` as users type it: its output, and the port that it asks for."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.whole.conftest import Pod, make_pod

__all__ = ["make_pod"]


def test_it_prints_files_and_the_next_command_and_asks_the_server_for_its_port(
    make_pod: Callable[..., Pod],
) -> None:
    pod = make_pod("--preset", "pod16")
    conf = pod.folder / "slurm.conf"
    names = "ClusterName=c\nSlurmctldHost=localhost\nSlurmUser=root\n"
    conf.write_text(names + "NodeName=localhost CPUs=4\n")
    command = ["podwright", "slurm", "configure", "--slurm-conf", str(conf)]
    command += ["--server", str(pod.socket), "--folder", str(pod.folder / "own")]
    printed = pod.good(*command)
    lines = printed.splitlines()
    assert len(lines) < 20
    assert any(re.fullmatch(rf"change {conf}: \d+ lines come", line) for line in lines)
    assert lines[-1] == (
        "Nothing was changed. --diff shows each line; --write makes these changes."
    )
    whole = pod.good(*command, "--diff")
    assert len(whole.splitlines()) > 200
    port = re.search(r"^\+port = (\d+)", whole, re.M)
    assert port, whole[-2000:]
    assert int(port[1]) not in (0, 8090)  # the server took a free one
