"""Random requests for a random site: every option that touches GPUs, cores, memory or nodes."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.outer.gpu.any_site import AnySite

Words = list[str]
Draw = Callable[[random.Random, AnySite], str]

_WAYS = {
    "gres": 10, "gpus": 9, "gpus-per-node": 9, "gpus-per-task": 9, "gpus-per-socket": 5,
    "ntasks-per-gpu": 5, "tres-per-task": 6, "shard": 5, "mps": 3, "gpus+gpus-per-node": 2,
    "gpus+gpus-per-task": 2, "gpus-per-node+gpus-per-task": 2, "none": 6,
}  # fmt: skip


def some_options(seed: int, count: int, site: AnySite) -> list[str]:
    """Options, all different; the same for the same seed and site."""
    dice = random.Random(f"options {seed}")
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(_words(dice, site))] = None
    return list(found)


def _few(*values: int) -> Draw:
    return lambda dice, _site: str(dice.choice(values))


def _one(*values: str) -> Draw:
    return lambda dice, _site: dice.choice(values)


def _typed(dice: random.Random, site: AnySite, *counts: int) -> str:
    kind = f"{dice.choice(site.types())}:" if dice.random() < 0.3 else ""
    return f"{kind}{dice.choice(counts)}"


def _two_types(dice: random.Random, site: AnySite) -> str:
    return ",".join(f"{kind}:{dice.choice((1, 2))}" for kind in site.types()[-2:])


def _constraint(dice: random.Random, site: AnySite) -> str:
    some = site.features()
    one, two = dice.choice(some), dice.choice(some)
    joined = (
        f"{one}&{two}",
        f"{one}|{two}",
        f"[{one}|{two}]",
        f"({one}|{two})&{dice.choice(some)}",
    )
    return dice.choice((one, one, *joined, f"{one}*1", f"{one}*2"))


def _names(dice: random.Random, site: AnySite) -> str:
    some = dice.sample(list(site.nodes), dice.choice((1, 1, 1, 2)))
    if len(some) == 2 and dice.random() < 0.5:
        return f"n[{','.join(name[1:] for name in some)}]"
    return ",".join(some)


def _partition(dice: random.Random, site: AnySite) -> str:
    return ",".join(dice.sample(site.names, dice.choice((1, 1, 1, 1, 2))))


def _memory(*values: int) -> Draw:
    return lambda dice, _site: f"{dice.choice(values)}{dice.choice(('', '', 'M'))}"


def _sized(dice: random.Random, _site: AnySite) -> str:
    return dice.choice(("0", "100", "1000", "3000M", "6000M", "1G"))


# name -> how often beside a way of asking for GPUs, and its value
_OTHERS: dict[str, tuple[float, Draw]] = {
    "nodes": (0.4, _one("1", "1", "2", "2", "3", "1-2", "2-3", "2-4", "1-4")),
    "ntasks": (0.4, _few(1, 2, 2, 3, 4, 4, 6, 8)),
    "ntasks-per-node": (0.18, _few(1, 2, 2, 3, 4)),
    "cpus-per-task": (0.18, _few(1, 2, 2, 3, 4)),
    "cpus-per-gpu": (0.08, _few(1, 2, 3)),
    "mem": (0.1, _sized),
    "mem-per-cpu": (0.08, _memory(50, 200, 600, 2000)),
    "mem-per-gpu": (0.08, _memory(100, 500, 1500, 3000)),
    "ntasks-per-socket": (0.06, _few(1, 1, 2, 3)),
    "ntasks-per-core": (0.05, _few(1, 1, 2)),
    "sockets-per-node": (0.04, _few(1, 2)),
    "cores-per-socket": (0.04, _few(1, 2, 4)),
    "threads-per-core": (0.05, _few(1, 1, 2)),
    "extra-node-info": (0.04, _one("1", "2", "1:2", "2:2", "1:2:1", "2:1:2")),
    "hint": (0.05, _one("nomultithread", "multithread", "compute_bound", "memory_bound")),
    "exclusive": (0.05, _one("", "", "user")),
    "oversubscribe": (0.03, _one("")),
    "overcommit": (0.03, _one("")),
    "constraint": (0.1, _constraint),
    "prefer": (0.03, lambda dice, site: dice.choice(site.features())),
    "nodelist": (0.06, _names),
    "exclude": (0.06, _names),
    "partition": (0.25, _partition),
    "mincpus": (0.04, _few(1, 2, 4, 6)),
    "core-spec": (0.03, _few(0, 1, 2)),
    "thread-spec": (0.03, _few(1, 2)),
    "contiguous": (0.03, _one("")),
    "spread-job": (0.03, _one("")),
    "use-min-nodes": (0.03, _one("")),
    "switches": (0.03, _one("1", "1", "2", "1@60")),
    "distribution": (0.06, _one("block", "cyclic", "block:block", "cyclic:cyclic",
                                "block:fcyclic", "plane=2", "arbitrary", "*", "cyclic:block",
                                "*:block", "plane=3", "block:block:cyclic", "block,NoPack")),
    "gres-flags": (0.12, _one("enforce-binding", "enforce-binding", "disable-binding",
                              "disable-binding", "one-task-per-sharing", "allow-task-sharing",
                              "multiple-tasks-per-sharing")),
    "gpu-bind": (0.06, _one("single:1", "closest", "none", "per_task:1", "per_task:2", "single:2",
                            "map_gpu:0,1,2,3", "mask_gpu:1,2,4", "verbose,closest", "map:1,0")),
    "tres-bind": (0.03, _one("gres/gpu:closest", "gres/gpu:single:1", "gres/gpu:per_task:1",
                             "gres/gpu:map:1,0", "gres/gpu:none")),
    "hold": (0.03, _one("")),
    "array": (0.025, _one("0", "7")),
    "gpu-freq": (0.03, _one("low", "medium")),
    "time": (0.05, _one("5", "30", "120", "1-0")),
    "time-min": (0.03, _one("5", "90")),
    "tmp": (0.03, _few(0, 1, 100)),
    "mem-bind": (0.03, _one("none", "local")),
    "segment": (0.03, _few(1, 2)),
    "network": (0.03, _one("none")),
}  # fmt: skip


def _words(dice: random.Random, site: AnySite) -> Words:
    ways = dice.choices(list(_WAYS), list(_WAYS.values()))[0].split("+")
    words = [word for way in ways for word in _asked(dice, site, way)]
    for name, (often, draw) in _OTHERS.items():
        often = often * 0.25 if "ntasks-per-gpu" in ways and name == "ntasks-per-node" else often
        if dice.random() < often:
            value = draw(dice, site)
            words.append(f"--{name}={value}" if value else f"--{name}")
    return words or ["--ntasks=1"]


def _asked(dice: random.Random, site: AnySite, way: str) -> Words:
    few = (1, 1, 2, 2, 3, 4)
    if way == "none":
        return []
    if way == "shard":
        words = [f"--gres=shard:{dice.choice((1, 1, 2, 3, 4, 6))}"]
        if dice.random() < 0.15:
            words = [f"--tres-per-task=gres/shard:{dice.choice((1, 2))}", "--ntasks=2"]
        return words
    if way == "mps":
        return [f"--gres=mps:{dice.choice((1, 5, 10, 10, 25, 50, 100, 150))}"]
    if way == "gres":
        if dice.random() < 0.06:
            return [dice.choice(("--gres=gpu:0", "--gres=gpu", "--gres=none"))]
        if dice.random() < 0.1:
            return [f"--gres=gpu:{dice.choice(site.types())}:1,shard:1"]
        if dice.random() < 0.08 and len(site.types()) > 1:
            one, two = dice.sample(site.types(), 2)
            return [f"--gres=gpu:{one}:1,gpu:{two}:{dice.choice((1, 2))}"]
        return [f"--gres=gpu:{_typed(dice, site, *few)}"]
    if way in ("gpus", "gpus-per-node") and dice.random() < 0.06:
        return [dice.choice((f"--{way}=0", f"--{way}={_two_types(dice, site)}"))]
    if way == "gpus":
        return [f"--gpus={_typed(dice, site, 1, 2, 3, 4, 4, 5, 6, 8, 10)}"]
    if way == "gpus-per-socket":
        words = [f"--gpus-per-socket={_typed(dice, site, 1, 1, 2, 3)}"]
        if dice.random() < 0.85:
            words.append(f"--sockets-per-node={dice.choice((1, 2, 2))}")
        return words
    if way == "ntasks-per-gpu":
        words = [f"--ntasks-per-gpu={dice.choice((1, 2, 2, 3))}"]
        if dice.random() < 0.15:
            how = dice.choice(("gpus-per-node=", "gres=gpu:"))
            words.append(f"--{how}{_typed(dice, site, 1, 2, 4)}")
        elif dice.random() < 0.75:
            words.append(f"--gpus={_typed(dice, site, 1, 2, 3, 4, 6)}")
        else:
            words.append(f"--ntasks={dice.choice((1, 2, 4, 6))}")
        return words
    if way == "tres-per-task":
        what = dice.choice(("gres/gpu:1", "gres/gpu:2", "gres/gpu=1", "cpu=2", "cpu=1,gres/gpu=1",
                            f"gres/gpu:{dice.choice(site.types())}:1"))  # fmt: skip
        words = [f"--tres-per-task={what}"]
        if dice.random() < 0.8:
            words.append(f"--ntasks={dice.choice((1, 2, 3, 4))}")
        return words
    count = _typed(dice, site, *(few if way == "gpus-per-node" else (1, 1, 1, 2, 2, 3)))
    words = [f"--{way}={count}"]
    if way == "gpus-per-task" and dice.random() < 0.7:
        words.append(f"--ntasks={dice.choice((1, 2, 3, 4, 6))}")
    return words
