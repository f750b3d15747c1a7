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
    command += ["--native", str(pod.folder / "built")]
    printed = pod.good(*command)
    lines = printed.splitlines()
    assert len(lines) < 20
    assert any(re.fullmatch(rf"change {conf}: \d+ lines are added", line) for line in lines)
    assert lines[-1] == (
        "Nothing was changed. --diff shows each line; --write makes these changes. "
        f"Before that: `podwright slurm build {pod.folder}/built`."
    )
    assert lines[-2] == (
        "Heterogeneous jobs start in Slurm's backfill passes, every 30 s here. To start them "
        "within seconds: SchedulerParameters=bf_interval=2,bf_max_time=30"
    )
    conf.write_text(f"{conf.read_text()}SchedulerParameters=bf_interval=2\n")
    assert "backfill passes" not in pod.good(*command)
    whole = pod.good(*command, "--diff")
    assert len(whole.splitlines()) > 200
    port = re.search(r"^\+port = (\d+)", whole, re.M)
    assert port, whole[-2000:]
    assert int(port[1]) not in (0, 8090)  # the server took a free one


def test_nothing_is_written_that_names_a_file_that_is_not_there(
    make_pod: Callable[..., Pod],
) -> None:
    """With dangling links slurmctld ends at its start: failed to initialize prep plugin."""
    pod = make_pod("--preset", "pod16")
    conf, built = pod.folder / "slurm.conf", pod.folder / "built"
    text = "ClusterName=c\nSlurmctldHost=localhost\nSlurmUser=root\nNodeName=localhost CPUs=4\n"
    conf.write_text(text)
    command = ["podwright", "slurm", "configure", "--slurm-conf", str(conf), "--write"]
    command += ["--folder", str(pod.folder / "own"), "--native", str(built)]
    command += ["--hooks-socket", str(pod.folder / "hooks" / "slurm.sock")]
    refused = pod.run(*command, environ={"PODWRIGHT_SOCKET": str(pod.socket)})
    assert refused.code == 2
    assert f"there is no {built}/podwright-hook" in refused.err
    assert f"`podwright slurm build {built}` makes it" in refused.err
    assert conf.read_text() == text
    assert not (pod.folder / "own").exists()
    built.mkdir()
    for name in ("podwright-hook", "spank_podwright.so"):
        (built / name).touch()
    written = pod.run(*command, environ={"PODWRIGHT_SOCKET": str(pod.socket)})
    assert written.code == 0, written
    assert written.out.splitlines()[-3:] == [
        "  systemctl restart slurmctld     then `scontrol reconfigure` for the nodes",
        f"  podwright slurm serve --site {pod.folder}/own/native.toml     as a service: docs, "
        "slurm/admin",
        f"  podwright slurm check --site {pod.folder}/own/native.toml     proves it by small jobs",
    ]


def test_a_server_that_does_not_answer_is_named_by_this_commands_own_option(
    make_pod: Callable[..., Pod],
) -> None:
    pod = make_pod("--preset", "pod16")
    conf = pod.folder / "slurm.conf"
    conf.write_text("ClusterName=c\nSlurmctldHost=localhost\nNodeName=localhost CPUs=4\n")
    command = ["podwright", "slurm", "configure", "--slurm-conf", str(conf)]
    refused = pod.run(*command, environ={"PODWRIGHT_SOCKET": str(pod.folder / "nobody")})
    assert "--server PATH, --server tcp:HOST:PORT, or PODWRIGHT_SOCKET" in refused.err
