"""`configure --gpus` on real Slurm: what it writes is what Slurm then counts, places and shuts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from podwright.gpu.configure import check, make_inventory
from podwright.gpu.templates import TemplateOptions, of_inventory, render
from tests.outer.gpu.truth import make_gpus
from tests.outer.lab import Release, SlurmLab, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

SWITCHES = [
    {"name": "leaf1", "nodes": "n[1-2]"},
    {"name": "leaf2", "nodes": "n[3-4]"},
    {"name": "spine", "switches": "leaf[1-2]"},
]


def bare_lab(slurm: Release | None = None, **conf: str) -> SlurmLab:
    """Four nodes of which Slurm knows no GPU; their lines go on over two lines of the file."""
    lab = SlurmLab(nodes=4, cpus=8, conf=conf, release=slurm)
    make_gpus(lab)
    path = lab.folder / "slurm.conf"
    path.write_text(path.read_text().replace(" CPUs=8", " \\\n   CPUs=8"))
    return lab


def inventory(lab: SlurmLab, *, domains: bool = False) -> dict[str, Any]:
    """Three nodes of four GPUs, and one of two."""
    common = {"sockets": 2, "cores_per_socket": 4}
    big = {"type": "a100", "count": 4, "memory": 80, "files": f"{lab.folder}/gpu[0-3]"}
    small = {"type": "v100", "count": 2, "files": f"{lab.folder}/gpu[0-1]"}
    small |= {"links": [[-1, 2], [2, -1]]}
    nodes = [{**common, "names": "n[1-3]", "gpus": big}, {**common, "names": "n4", "gpus": small}]
    if domains:
        rack = {"n1": "rack1", "n2": "rack1", "n3": "rack2", "n4": "rack2"}
        nodes = [
            {**common, "names": n, "domain": rack[n], "gpus": small if n == "n4" else big}
            for n in rack
        ]
    main = {"name": "main", "nodes": "n[1-4]"}
    return {"nodes": nodes, "switches": SWITCHES, "partitions": [main]}


def command(lab: SlurmLab, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "podwright.cli.podwright", "slurm", *words],
        env=lab.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def configured(lab: SlurmLab, tree: dict[str, Any], *words: str) -> None:
    file = lab.folder / "inventory.json"
    file.write_text(json.dumps(tree))
    conf = f"--slurm-conf={lab.folder}/slurm.conf"
    version = "{}.{:02}".format(*lab.release.version)
    done = command(
        lab, "configure", "--gpus", str(file), conf, "--slurm-version", version, "--write", *words
    )
    assert done.returncode == 0, done.stderr


def problems(lab: SlurmLab, tree: dict[str, Any], *, stuck: bool = False) -> list[str]:
    """What `check` finds, asked where this lab's Slurm is. stuck: where one job runs the others
    wait for good, so nobody waits for them."""
    shown = ""

    def ask(argv: Sequence[str]) -> tuple[int, str]:
        nonlocal shown
        done = lab.run(*argv)
        shown = done.stdout
        return done.returncode, done.stderr + done.stdout

    def wait(seconds: float) -> None:
        if not (stuck and "RUNNING" in shown):
            time.sleep(seconds)

    found = list(check(make_inventory(tree), ask, wait))
    assert len(found) > 8
    return [f"{promise.text}: {promise.problem}" for promise in found if promise.problem]


def files(lab: SlurmLab) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in lab.folder.glob("*.conf")}


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_what_is_written_is_what_slurm_has(name: str) -> None:
    lab = bare_lab(release(name))
    before = files(lab)
    tree = inventory(lab)
    configured(lab, tree)
    with lab:
        assert problems(lab, tree) == []
        nodes = lab.ok("sinfo", "--noheader", "-N", "-o", "%N %G %f").splitlines()
        assert re.match(r"n1 gpu:a100:4(\(S:0-1\))? a100,gpumem80g", nodes[0])
        assert re.match(r"n4 gpu:v100:2(\(S:0-1\))? v100", nodes[3])
        # Fewest switches: with n1 taken, two nodes are those of the other leaf.
        held = lab.submit("sleep 600", "-w", "n1", "--exclusive")
        lab.wait_state(held, "RUNNING")
        pair = lab.submit("sleep 600", "-N2", "--gpus-per-node=1")
        assert lab.wait_state(pair, "RUNNING").fields["NodeList"] == "n[3-4]"
        lab.ok("scancel", str(held), str(pair))
        lab.wait_over(held, pair)
        done = command(
            lab, "configure", "--gpus", "--undo", f"--slurm-conf={lab.folder}/slurm.conf"
        )
        assert done.returncode == 0, done.stderr
        assert files(lab) == before


def test_blocks_hold_jobs_together(middle: Release) -> None:
    lab = bare_lab(middle)
    tree = inventory(lab, domains=True)
    configured(lab, tree)
    assert "BlockName=rack1 Nodes=n[1-2]" in (lab.folder / "topology.conf").read_text()
    with lab:
        assert problems(lab, tree) == []
        held = lab.submit("sleep 600", "-w", "n1", "--exclusive")
        lab.wait_state(held, "RUNNING")
        pair = lab.submit("sleep 600", "-N2", "--segment=2", "--gpus-per-node=1")
        assert lab.wait_state(pair, "RUNNING").fields["NodeList"] == "n[3-4]"


@pytest.mark.parametrize("name", ["middle", "newest"])
def test_segments_of_a_script_start_over_racks_of_unequal_sizes(name: str) -> None:
    """Before 25.11 one that is larger than the smallest rack is refused."""
    lab = SlurmLab(nodes=5, cpus=4, release=release(name))
    make_gpus(lab)
    gpus = {"type": "gb200", "count": 4, "files": f"{lab.folder}/gpu[0-3]"}
    tray = {"sockets": 1, "cores_per_socket": 4, "gpus": gpus}
    racks = [{**tray, "names": "n[1-3]", "domain": "a"}, {**tray, "names": "n[4-5]", "domain": "b"}]
    tree = {"nodes": racks, "partitions": [{"name": "main", "nodes": "n[1-5]"}]}
    configured(lab, tree)
    with lab:
        for count in (2, 3, 4, 5):
            wishes = TemplateOptions(nodes=count)
            fit = of_inventory(make_inventory(tree), wishes, lab.release.version)
            text = render("torchrun", fit, wishes)
            segment = re.findall(r"^#SBATCH (--segment=\d+)", text, re.M)
            job = lab.submit("sleep 600", f"--nodes={count}", "--gpus-per-node=4", *segment)
            lab.wait_state(job, "RUNNING")
            lab.ok("scancel", str(job))
            lab.wait_over(job)


def test_a_rack_keeps_its_jobs_inside_beside_a_fabric() -> None:
    """n1 and n2 are a rack's, n3 and n4 hang on a switch: each partition by its own topology."""
    lab = bare_lab(release("newest"))
    tree = inventory(lab)
    big, small = tree["nodes"]
    tree["nodes"] = [
        {**big, "names": "n[1-2]", "domain": "rack1"},
        {**big, "names": "n3"},
        small,
    ]
    tree["switches"] = [{"name": "leaf", "nodes": "n[3-4]"}]
    tree["partitions"] = [
        {"name": "main", "nodes": "n[3-4]"},
        {"name": "nvl", "nodes": "n[1-2]", "exclusive": True},
    ]
    configured(lab, tree)  # a job that names no partition gets no node of the rack
    with lab:
        assert problems(lab, tree) == []
        inside = lab.submit("sleep 600", "-p", "nvl", "-N2", "--segment=2", "--gpus-per-node=1")
        assert lab.wait_state(inside, "RUNNING").fields["NodeList"] == "n[1-2]"
        outside = lab.submit("sleep 600", "-N2", "--switches=1", "-w", "n[3-4]", "--gpus=2")
        assert lab.wait_state(outside, "RUNNING").fields["NodeList"] == "n[3-4]"


def test_confined_jobs_open_their_own_alone() -> None:
    lab = bare_lab()
    lab.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    tree = inventory(lab)
    tree["partitions"][0]["exclusive"] = True
    configured(lab, tree, "--confine")
    with lab:
        assert problems(lab, tree) == []
        first, second = (lab.submit("sleep 600", "-wn1", "--gpus=1") for _ in range(2))
        lab.wait_state(first, "RUNNING")
        lab.wait("its reason", lambda jobs: jobs[second].fields["Reason"] == "Resources")


def test_check_finds_what_is_wrong() -> None:
    lab = bare_lab()
    tree = inventory(lab)
    configured(lab, tree)
    with lab:
        (lab.folder / "gpu3").unlink()
        lab.ok("scontrol", "update", "nodename=n2", "state=drain", "reason=fan is loud")
        tree["nodes"][1]["gpus"]["type"] = "t4"
        found = "\n".join(problems(lab, tree))
        assert f"n1: a job finds 4 GPUs and their device files: lacks {lab.folder}/gpu3" in found
        assert "n2: IDLE+DRAIN fan is loud" in found
        assert "n4: Slurm counts 2 v100" in found
        assert "asked for by type t4: " in found
        said = command(lab, "check", "--gpus", f"{lab.folder}/inventory.json")
        assert said.returncode == 1
        assert "yes  GPUs can be asked for by feature v100\n" in said.stdout
        assert "NO   n1: a job finds 4 GPUs" in said.stdout


def test_a_job_opens_its_own_slice_alone() -> None:
    """Two slices of a GPU: its file, which both must open, and one of each slice's own."""
    lab = bare_lab()
    lab.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    tree = inventory(lab)
    slices = [
        {"type": "h100_1g.10gb", "file": f"{lab.folder}/gpu0,{lab.folder}/gpu{own}"}
        for own in (1, 2)
    ]
    tree["nodes"][1] = {"sockets": 2, "cores_per_socket": 4, "names": "n4", "gpus": slices}
    configured(lab, tree, "--confine")
    look = f'for n in 0 1 2; do (: <>{lab.folder}/gpu$n) 2>&1; done | grep -o "[a-z]*$"'
    with lab:
        assert problems(lab, tree) == []
        one = ("-wn4", "--gres=gpu:h100_1g.10gb:1")
        first = lab.submit("sleep 600", *one)
        lab.wait_state(first, "RUNNING")
        assert lab.ok("srun", *one, "sh", "-c", look).split() == ["address", "permitted", "address"]
        second = lab.submit("sleep 600", *one)
        lab.wait_state(second, "RUNNING")
        third = lab.submit("true", *one)
        lab.wait("its reason", lambda jobs: jobs[third].fields["Reason"] == "Resources")
        lab.ok("scancel", str(first))
        lab.wait_over(third)


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_jobs_that_say_nothing_of_memory_share_a_node(name: str) -> None:
    """Where Slurm counts memory, each GPU and each core brings its share of it."""
    lab = bare_lab(release(name), SelectType="", SelectTypeParameters="")
    tree = inventory(lab)
    configured(lab, tree)
    text = (lab.folder / "slurm.conf").read_text()
    assert "SelectTypeParameters=CR_Core_Memory #podwright-gpus\n" in text
    with lab:
        assert problems(lab, tree) == []
        # Four GPUs and no core left over: what a GPU brings is a quarter of both.
        four = [lab.submit("sleep 600", "-wn1", "--gpus=1") for _ in range(4)]
        for job in four:
            fields = lab.wait_state(job, "RUNNING").fields
            assert "cpu=2,mem=25000M," in fields.get("TRES", fields.get("AllocTRES", ""))
        # Jobs without GPUs share a node as well; who asks for memory gets what he asked for.
        plain = [lab.submit("sleep 600", "-wn2", "-n1") for _ in range(2)]
        asked = lab.submit("sleep 600", "-wn2", "--gpus=1", "--mem=30000")
        for job in (*plain, asked):
            lab.wait_state(job, "RUNNING")
        lab.ok("scancel", *map(str, (*four, *plain, asked)))
        lab.wait_over(*four, *plain, asked)
        # Without the defaults a job takes all memory of its node, and `check` says so.
        text = "".join(
            line for line in text.splitlines(keepends=True) if not line.startswith("DefMemPer")
        )
        (lab.folder / "slurm.conf").write_text(text)
        lab.ok("scontrol", "reconfigure")
        lab.wait_for_nodes()
        found = "\n".join(problems(lab, tree, stuck=True))
        assert "n1: 4 jobs of one GPU, without --mem, run at once: 1 ran, the others" in found


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_jobs_share_gpus_by_shards_and_by_mps(name: str) -> None:
    """n1 has two shards a GPU, n4 its two GPUs in hundredths; whole GPUs stay to be had."""
    lab = bare_lab(release(name))
    tree = inventory(lab)
    big, small = tree["nodes"]
    tree["nodes"] = [
        {**big, "names": "n1", "shards": 2},
        {**big, "names": "n[2-3]"},
        {**small, "mps": 100},
    ]
    configured(lab, tree)
    with lab:
        assert problems(lab, tree) == []
        whole = lab.submit("#!/bin/sh\nsleep 600", "-wn1", "--gres=gpu:2")
        lab.wait_state(whole, "RUNNING")
        # Four shards of the two GPUs that are left, one job each; a fifth waits.
        four = [lab.submit("#!/bin/sh\nsleep 600", "-wn1", "--gres=shard:1") for _ in range(4)]
        for job in four:
            lab.wait_state(job, "RUNNING")
        fifth = lab.submit("#!/bin/sh\nsleep 600", "-wn1", "--gres=shard:1")
        lab.wait("its reason", lambda jobs: jobs[fifth].fields["Reason"] == "Resources")
        # One GPU of a node serves hundredths at a time, whatever the others do.
        parts = [lab.submit("#!/bin/sh\nsleep 600", "-wn4", "--gres=mps:60") for _ in range(2)]
        lab.wait_state(parts[0], "RUNNING")
        lab.wait("its reason", lambda jobs: jobs[parts[1]].fields["Reason"] == "Resources")
        percentage = "#!/bin/sh\necho $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
        little = lab.submit(percentage, "-wn4", "--gres=mps:40")
        lab.wait_over(little)
        assert (lab.folder / "out" / f"slurm-{little}.out").read_text() == "40\n"
        lab.ok("scancel", str(four[0]))
        lab.wait_state(fifth, "RUNNING")
