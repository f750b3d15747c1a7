"""What scontrol says of two nodes with GPUs, a job that runs and two that wait."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.slurm.reader import texts

NODES = (
    "NodeName=gpu1 Arch=x86_64 CoresPerSocket=16 CPUAlloc=8 CPUEfctv=32 CPUTot=32 CPULoad=0.1 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:a100:4(S:0-1) NodeAddr=gpu1 "
    "NodeHostName=gpu1 RealMemory=64000 AllocMem=16000 FreeMem=N/A Sockets=2 Boards=1 "
    "State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu "
    "CfgTRES=cpu=32,mem=64000M,billing=32,gres/gpu=4 AllocTRES=cpu=8,gres/gpu=2 \n"
    "NodeName=gpu2 Arch=x86_64 CoresPerSocket=16 CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=0.1 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:a100:4(S:0-1) NodeAddr=gpu2 "
    "NodeHostName=gpu2 RealMemory=64000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1 "
    "State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu "
    "CfgTRES=cpu=32,mem=64000M,billing=32,gres/gpu=4 AllocTRES= "
    "Reason=XID 79 on GPU 3 [root@2026-01-01T00:00:00]\n"
    "NodeName=cpu1 Arch=x86_64 CoresPerSocket=16 CPUAlloc=0 CPUTot=32 AvailableFeatures=(null) "
    "Gres=(null) RealMemory=1 AllocMem=0 Sockets=2 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 "
    "Partitions=cpu \n"
)
_JOB = (
    "JobId={job} JobName={name} UserId={user}(1001) GroupId=g(1001) MCS_label=N/A "
    "Priority={priority} Nice=0 Account=(null) QOS=(null) JobState={state} Reason={reason} "
    "Dependency=(null) Requeue=1 SubmitTime=2026-01-01T10:00:00 StartTime={start} "
    "EndTime=2026-01-01T12:00:00 Partition=gpu NodeList={on} NumNodes={nodes} NumCPUs=8 "
    "NumTasks={tasks} CPUs/Task=1 CoreSpec=* {gpus}MinCPUsNode=1 {more}Power= \n"
)
JOBS = (
    _JOB.format(
        job=7, name="train", user="alice", priority=10, state="RUNNING", reason="None", on="gpu1",
        start="2026-01-01T10:05:00", nodes=1, tasks=2,
        gpus="JOB_GRES=gpu:a100:2   Nodes=gpu1 CPU_IDs=0-7 Mem=16000 GRES=gpu:a100:2(IDX:0,2) ",
        more="TresPerNode=gres/gpu:2 ",
    )
    + _JOB.format(
        job=8, name="wide", user="bob", priority=5, state="PENDING", reason="Resources", on="",
        start="Unknown", nodes="1-1", tasks=8, gpus="", more="TresPerNode=gres:gpu:8 ",
    )
    + _JOB.format(
        job=9, name="first", user="ruth", priority=50, state="PENDING", reason="Priority", on="",
        start="2026-01-01T12:00:00", nodes="1-1", tasks=1, gpus="",
        more="TresPerJob=gres/gpu:a100:2 ",
    )
    + _JOB.format(
        job=10, name="cpu", user="ruth", priority=90, state="PENDING", reason="Priority", on="",
        start="Unknown", nodes="1", tasks=1, gpus="", more="",
    )
)  # fmt: skip
CONFIG = texts.config("24.11.5", PrivateData="{private}", GresTypes="gpu")
PARTITIONS = texts.partition("24.11.5", PartitionName="gpu", Nodes="gpu[1-2]")


def said(words: list[str], *, private: str = "none") -> str:
    """What scontrol prints for these words."""
    if "config" in words:
        return CONFIG.replace("{private}", private)
    for word, text in (("node", NODES), ("job", JOBS), ("partition", PARTITIONS)):
        if word in words:
            return text
    return ""


def stand_in(folder: Path) -> Path:
    """A program that answers like scontrol: `stand-in scontrol show node`."""
    file = folder / "slurm-says"
    root = Path(__file__).parents[3]
    file.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        "from tests.gpu.nodespage.words import said\nprint(said(sys.argv[2:]), end='')\n"
    )
    file.chmod(0o755)
    return file
