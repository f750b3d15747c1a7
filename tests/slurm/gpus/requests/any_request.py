"""Random requests for GPUs: all ways of asking, alone and together, with counts that agree or not.

Most are drawn so that Slurm may well grant them; what it refuses must be foretold as well.
"""

from __future__ import annotations

import random

_WAYS = {
    "gres": 6, "gpus": 10, "node": 6, "task": 8, "socket": 5, "share": 6,
    "gpus+node": 3, "gpus+gres": 3, "node+task": 3, "gres+task": 3, "gpus+task": 4,
    "socket+gpus": 3, "socket+node": 2, "socket+gres": 2, "share+gpus": 5, "share+node": 4,
    "share+gres": 3, "gres+node": 2, "socket+task": 2, "gpus+node+task": 1,
    "gpus+node+socket": 0.5, "share+task": 0.3, "share+socket": 0.3,
}  # fmt: skip
_BINDS = (
    "single:1", "single:2", "closest", "none", "per_task:1", "per_task:2", "map_gpu:0,1,2,3",
    "map_gpu:3,2,1,0", "map_gpu:0*2,1", "mask_gpu:1,2,4,8", "mask_gpu:0x3,0xc", "mask_gpu:f",
    "verbose,single:1",
)  # fmt: skip


def some_requests(
    seed: int, count: int, kinds: tuple[str, ...] = ("a100",)
) -> list[tuple[str, str]]:
    """(command, options), all different; the same for the same seed."""
    dice = random.Random(seed)
    found: dict[tuple[str, str], None] = {}
    while len(found) < count:
        command = dice.choice(("srun", "srun", "salloc", "salloc", "sbatch"))
        found[command, " ".join(_words(dice, kinds))] = None
    return list(found)


def _words(dice: random.Random, kinds: tuple[str, ...]) -> list[str]:
    named = dice.random() < (0.2 if len(kinds) == 1 else 0.5)
    kind = f"{dice.choice(kinds)}:" if named else ""
    ways = dice.choices(list(_WAYS), list(_WAYS.values()))[0].split("+")
    words = [word for way in ways for word in _counted(dice, way, kind, kinds)]
    if dice.random() < 0.5:
        low = dice.choice((1, 1, 2, 2, 3, 4))
        words.append(f"--nodes={low}" + (f"-{dice.randint(low, 4)}" * (dice.random() < 0.1)))
    if dice.random() < 0.45:
        words.append(f"--ntasks={dice.choice((1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 10, 12, 16))}")
    if dice.random() < (0.05 if "share" in ways else 0.3):
        words.append(f"--ntasks-per-node={dice.choice((1, 2, 2, 3, 4, 4, 6, 8))}")
    if dice.random() < 0.25:
        words.append(f"--cpus-per-task={dice.choice((1, 2, 2, 3, 4))}")
    if dice.random() < 0.08:
        words.append(f"--cpus-per-gpu={dice.choice((1, 2, 3, 4))}")
    if dice.random() < 0.25:
        words.append(f"--gpu-bind={dice.choice(_BINDS)}")
    return words


def _counted(dice: random.Random, way: str, kind: str, kinds: tuple[str, ...]) -> list[str]:
    few = dice.choice((1, 2, 3, 4)) if dice.random() < 0.93 else dice.choice((5, 6))
    if way == "gres" and len(kinds) > 1 and dice.random() < 0.15:
        return ["--gres=" + ",".join(f"gpu:{one}:{dice.choice((1, 1, 2))}" for one in kinds)]
    if way == "gpus":
        many = dice.choice((1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 12, 13, 16, 17))
        return [f"--gpus={kind}{many}"]
    if way == "task":
        return [f"--gpus-per-task={kind}{dice.choice((1, 1, 1, 2, 2, 3, 4))}"]
    if way == "socket":
        words = [f"--gpus-per-socket={kind}{dice.choice((1, 1, 2, 2, 3))}"]
        if dice.random() < 0.93:
            words.append(f"--sockets-per-node={dice.choice((1, 2, 2))}")
        return words
    if way == "share":
        return [f"--ntasks-per-gpu={dice.choice((1, 1, 2, 2, 3, 4))}"]
    return [f"--gres=gpu:{kind}{few}" if way == "gres" else f"--gpus-per-node={kind}{few}"]
