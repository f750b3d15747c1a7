"""Nodes, their GPUs and who has them, read from scontrol's words. Pure.

A job's name and comment are its user's and may hold anything, so nothing is decided by what is
read here: it is shown.

A page's topics: `nodes`, `jobs` (that run) and `queue` (that wait). Times are seconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from podwright.errors import InvalidRequest
from podwright.hosts import expand, read_list

_WORD = re.compile(r"(?:^|\s)([A-Za-z][\w/:\-]*)=")
_GRES = re.compile(r"gpu(?::([^(),:\s]+))?:(\d+)")
_HELD = re.compile(r"gpu(?::[^(),:]+)?:(\d+)\(IDX:([0-9,-]+)\)")
_ON = re.compile(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_ILL = ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "UNKNOWN", "INVALID_REG")
#: How scontrol names what was asked for, and the option that asks for it.
_ASKED = {
    "TresPerJob": "--gpus",
    "TresPerNode": "--gpus-per-node",
    "TresPerSocket": "--gpus-per-socket",
    "TresPerTask": "--gpus-per-task",
}


def fields(line: str) -> dict[str, str]:
    """One line of `scontrol --oneliner` as pairs. A value may have blanks, as a reason has."""
    found = list(_WORD.finditer(line))
    ends = [one.start() for one in found[1:]] + [len(line)]
    return {one[1]: line[one.end() : end].strip() for one, end in zip(found, ends, strict=True)}


def gpus_of(gres: str) -> list[str]:
    """The type of each GPU of a node, in order: its `Gres`."""
    return [kind or "gpu" for kind, count in _GRES.findall(gres) for _ in range(int(count))]


def nodes(text: str) -> dict[str, dict[str, Any]]:
    """`scontrol --oneliner show node`: those that have GPUs."""
    out = {}
    for line in text.splitlines():
        said = fields(line)
        kinds = gpus_of(said.get("Gres", ""))
        if not kinds or not said.get("NodeName"):
            continue
        state = said.get("State", "UNKNOWN")
        reason = said.get("Reason", "")
        out[said["NodeName"]] = {
            "state": state,
            "ill": any(word in state for word in _ILL),
            "reason": "" if reason == "(null)" else reason,
            "partitions": said.get("Partitions", "").replace("(null)", ""),
            "gpus": [[kind, ""] for kind in kinds],
            "cpus": [_number(said.get("CPUAlloc", "")), _number(said.get("CPUTot", ""))],
            "memory": [_number(said.get("AllocMem", "")), _number(said.get("RealMemory", ""))],
        }
    return out


def jobs(text: str) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
    """`scontrol --details --oneliner show job`: those that run and hold GPUs, by number, with
    `on`, node -> indices; and those that wait for GPUs, as pairs, in Slurm's order."""
    running, waiting = {}, []
    for line in text.splitlines():
        said = fields(line)
        number, state = said.get("JobId", ""), said.get("JobState", "")
        if state in ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED"):
            held = _held(line)
            if held:
                running[number] = {
                    "user": said.get("UserId", "").partition("(")[0],
                    "name": said.get("JobName", "")[:80],
                    "partition": said.get("Partition", ""),
                    "gpus": sum(len(places) for places in held.values()),
                    "nodes": len(held),
                    "since": said.get("StartTime", ""),
                    "until": said.get("EndTime", ""),
                    "on": held,
                }
        elif state == "PENDING" and any("gpu" in said.get(word, "") for word in _ASKED):
            waiting.append(said)
    waiting.sort(key=lambda one: (-_number(one.get("Priority", "")), _number(one["JobId"])))
    return running, waiting


def place_jobs(there: Mapping[str, dict[str, Any]], running: Mapping[str, dict[str, Any]]) -> None:
    """Write into each GPU whose it is."""
    for number, job in running.items():
        for node, indices in job["on"].items():
            gpus = there[node]["gpus"] if node in there else []
            for index in indices:
                if index < len(gpus):
                    gpus[index][1] = number


def words_of(said: Mapping[str, str]) -> list[str]:
    """The options with which a waiting job would be asked for again."""
    words = []
    for field, option in _ASKED.items():
        wanted = [
            one.replace("gres/", "").replace("gres:", "").removeprefix("gpu").lstrip(":=")
            for one in said.get(field, "").split(",")
            if "gpu" in one
        ]
        if wanted:
            words.append(f"{option}={','.join(one or '1' for one in wanted)}")
    for field, option in (
        ("NumTasks", "--ntasks"),
        ("CPUs/Task", "--cpus-per-task"),
        ("Partition", "--partition"),
    ):
        value = said.get(field, "")
        if value and value not in ("N/A", "(null)"):
            words.append(f"{option}={value.partition(',')[0]}")
    count = re.match(r"\d+(-\d+)?", said.get("NumNodes", ""))
    if count:
        words.append(f"--nodes={count[0].partition('-')[0]}")
    return words


def hidden(config: str) -> frozenset[str]:
    """What PrivateData of `scontrol show config` hides from users."""
    found = re.search(r"^PrivateData\s*=\s*(\S+)", config, re.M)
    return frozenset(found[1].lower().split(",")) - {"none"} if found else frozenset()


def _held(line: str) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for names, gres in _ON.findall(line):
        try:
            found = [at for _, numbers in _HELD.findall(gres) for at in read_list(numbers)]
            for node in expand(names) if found else ():
                out.setdefault(node, []).extend(found)
        except (InvalidRequest, ValueError):
            continue
    return out


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
