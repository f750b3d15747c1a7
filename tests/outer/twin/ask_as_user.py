"""Prints what a twin of a recorded cluster answers: arguments are the file, the root folder of
Slurm and a number of requests. With `wait` after these it prints the user's processes first and
keeps the twin until its input ends."""

import sys
from pathlib import Path

from podwright.slurm.twin import Twin, find_slurm
from tests.slurm.twin.recorded import outcome_of, read_cluster


def main() -> None:
    path, root, count, *more = sys.argv[1:]
    site, requests = read_cluster(Path(path))
    slurm = find_slurm(path="" if root == "/" else root)
    assert slurm is not None
    with Twin(site, slurm) as twin:
        for request in requests[: int(count)]:
            print(outcome_of(twin.ask(request.submission)), flush=True)
        if more:
            print("ready", flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main()
