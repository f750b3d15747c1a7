"""Job scripts on real Slurm over several hosts: those that need little, and all to be accepted."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from podwright.gpu.templates import TEMPLATES, TemplateOptions
from tests.outer.gpu.site import ScriptSite, executable, script_site, stand_ins
from tests.outer.lab import Job

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


MPI = "from mpi4py import MPI; w = MPI.COMM_WORLD; print('sum', w.allreduce(w.rank), 'of', w.size)"


#: A rank that says who it is; with an argument the one of that number fails, the others wait.
RANKS = """
import os, sys, time
env = os.environ
rank = int(env.get("RANK", env["SLURM_PROCID"]))
world = env.get("WORLD_SIZE", env["SLURM_NTASKS"])
print("rank", rank, "of", world, "local", env.get("LOCAL_RANK", env["SLURM_LOCALID"]), flush=True)
if len(sys.argv) > 1:
    if rank == int(sys.argv[1]):
        time.sleep(1)
        sys.exit(3)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def site() -> Iterator[ScriptSite]:
    with script_site() as site:
        stand_ins(site)
        yield site


@pytest.mark.parametrize("name", ["torchrun", "accelerate", "deepspeed", "lightning", "finetune"])
def test_every_gpu_has_a_rank_and_a_failure_keeps_its_code(site: ScriptSite, name: str) -> None:
    program = site.program("ranks.py", RANKS)
    state, code, said = site.run(site.template(name), program)
    assert (state, code) == ("COMPLETED", 0), said
    for rank in range(4):
        assert f"rank {rank} of 4 local {rank % 2}" in said
    state, code, said = site.run(site.template(name), program, "2")
    assert (state, code) == ("FAILED", 3), said
    assert list((site.lab.folder / "out").glob(".first-exit*")) == []


#: A rank that takes its time to save when it is told to, and goes on from there.
TUNE = """
import os, signal, sys, time
from pathlib import Path
saved = Path(os.environ["CHECKPOINT_DIR"], "rank" + os.environ["RANK"])
def stop(*_):
    time.sleep(3)  # a model is large
    saved.write_text("step 5")
    sys.exit(1)
if saved.exists():
    sys.stdout.write(f"goes on from {saved.read_text()}\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
sys.stdout.write("begins\\n")
sys.stdout.flush()
time.sleep(600)
"""


def test_fine_tuning_saves_and_goes_on_after_its_time(site: ScriptSite) -> None:
    """What Slurm sends five minutes before the end, sent by hand."""
    program = site.program("tune.py", TUNE)
    state, said = site.run_again(site.template("finetune"), program)
    assert said.count("goes on from step 5") == 4, said
    assert state == "COMPLETED", said


def test_vllm_answers_each_shard_once(site: ScriptSite) -> None:
    stand_in = (
        '#!/bin/sh\n[ "$1" = run-batch ] || exit 9\nsed "s|^|$7 on $9: |" "$3" >"$5"\n'
        # its fourth shard fails once
        'grep -q "^3$" "$3" && [ ! -e failed ] && : >failed && exit 5\nexit 0\n'
    )
    executable(site.bin / "vllm", stand_in)
    lines = site.program("requests.jsonl", "".join(f"{n}\n" for n in range(8)))
    folder = site.lab.folder / "out" / "batch"
    for _ in range(2):
        job = site.submit(
            site.template("vllm"), lines, str(folder), "some/model", options=["--array=0-3"]
        )
        site.lab.wait("the array", partial(done, array=job, count=4))
    parts = sorted(folder.iterdir())
    assert [path.name for path in parts] == [f"part-0000{n}-of-00004" for n in range(4)]
    answers = sorted(line for path in parts for line in path.read_text().splitlines())
    assert answers == [f"some/model on 2: {n}" for n in range(8)]


@pytest.mark.parametrize(
    "wishes", [TemplateOptions(), TemplateOptions(type="h100", memory=70 << 30, partition="main")]
)
def test_slurm_takes_every_script(site: ScriptSite, wishes: TemplateOptions) -> None:
    for name in TEMPLATES:
        if name != "pipeline":
            text = site.template(name, wishes)
            done = site.lab.run("sbatch", "--test-only", stdin=text)
            assert done.returncode == 0, (name, done.stderr)


def test_a_sweep_runs_each_line(site: ScriptSite) -> None:
    lines = site.program("sweep.txt", "--rate 1\n--rate 2 --deep\n--rate 3\n")
    array = ["--array=0-3%2"]
    words = (lines, "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES: $*"', "run")
    job = site.submit(site.template("sweep"), *words, options=array)
    over = site.lab.wait("the array", partial(done, array=job, count=4))
    assert {one.state for one in over.values() if array_of(one) == str(job)} == {"COMPLETED"}
    said = site.output(f"sweep-{job}_*.out")
    for line in ("--rate 1", "--rate 2 --deep", "--rate 3", "no line 4: nothing to do"):
        assert line in said
    assert "0: --rate 1" in said


def test_shards_that_are_done_stay_done(site: ScriptSite) -> None:
    lines = site.program("prompts.txt", "".join(f"{n}\n" for n in range(10)))
    folder = site.lab.folder / "out" / "answers"
    words = (lines, str(folder), "sed", "s/^/answer /")
    for attempt in (1, 2):
        job = site.submit(site.template("inference"), *words, options=["--array=0-2"])
        site.lab.wait("the array", partial(done, array=job, count=3))
        said = site.output(f"inference-{job}_*.out")
        assert said.count("is done") == (0 if attempt == 1 else 3)
    parts = sorted(folder.iterdir())
    assert [path.name for path in parts] == [f"part-0000{n}-of-00003" for n in range(3)]
    answers = sorted(line for path in parts for line in path.read_text().splitlines())
    assert answers == [f"answer {n}" for n in range(10)]


def test_a_pipeline_stops_where_a_job_fails(site: ScriptSite) -> None:
    good = site.program("good.sh", "#!/bin/sh\ntrue\n")
    bad = site.program("bad.sh", "#!/bin/sh\nexit 3\n")
    script = site.lab.write(
        "out/pipeline.sh", site.template("pipeline", TemplateOptions(partition="main"))
    )
    done = site.lab.run("bash", str(script), good, bad, good)
    assert done.returncode == 0, done.stderr
    jobs = [int(line.split()[0]) for line in done.stdout.splitlines()]
    over = site.lab.wait_over(*jobs)
    assert [over[job].state for job in jobs] == ["COMPLETED", "FAILED", "CANCELLED"]


def test_gpu_memory_is_looked_at(site: ScriptSite) -> None:
    program = site.program("ranks.py", RANKS)
    text = site.template("torchrun", TemplateOptions(memory=80 << 30))
    assert '--constraint="gpumem80g"' in text
    executable(site.bin / "nvidia-smi", "#!/bin/sh\necho 81559\necho 81559\n")
    state, _, said = site.run(text, program)
    assert state == "COMPLETED", said
    assert "rank 3 of 4" in said
    executable(site.bin / "nvidia-smi", "#!/bin/sh\necho 81559\necho 40960\n")
    state, code, said = site.run(text, program)
    assert (state, code) == ("FAILED", 1), said
    assert "a GPU of 40960 MiB, and 80 GiB were asked for" in said


def test_mpi_over_pmix(site: ScriptSite) -> None:
    words = (sys.executable, "-c", MPI)
    state, _, said = site.run(site.template("mpi"), *words, path=str(Path(sys.executable).parent))
    assert state == "COMPLETED", said
    assert said.count("sum 6 of 4") == 4
    words = (sys.executable, "-c", "from mpi4py import MPI; raise SystemExit(MPI.COMM_WORLD.rank)")
    state, code, said = site.run(
        site.template("mpi"), *words, path=str(Path(sys.executable).parent)
    )
    assert state == "FAILED", said
    assert code in (1, 2, 3), said


def array_of(job: Job) -> str:
    return job.fields.get("ArrayJobId", "")


def done(jobs: Mapping[int, Job], array: int, count: int) -> bool:
    """Whether so many tasks of an array are over."""
    some = [one for one in jobs.values() if array_of(one) == str(array)]
    return len(some) == count and all(one.over for one in some)
