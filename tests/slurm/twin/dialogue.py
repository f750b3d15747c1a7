"""What a twin and its namespaces exchange, recorded once and played in the inner ring.

`python -m tests.slurm.twin.dialogue` records `dialogue.json` anew with this machine's Slurm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podwright.slurm.site.command_result import CommandResult
from podwright.slurm.twin import Submission, Twin, find_slurm
from podwright.slurm.twin._twin_process_client import CellUser, NamespaceCell, TwinCell, TwinPlace
from tests.slurm.twin.recorded import clusters, read_cluster

FILE = Path(__file__).with_name("dialogue.json")
SITE = clusters("22.05.8")[0]
REQUESTS = {
    "granted": Submission("sbatch", ("--gpus=2", "--exclude=n7")),
    "waits": Submission("sbatch", ("--gpus=1", "--begin=now+1hour")),
    "refused": Submission("sbatch", ("--gpus=1", "--partition=nowhere")),
    "salloc": Submission("salloc", ("--gpus=h100:1", "--ntasks=1")),
}


class PlayedCell:
    """Answers each request with what was recorded for it: in order, the last one repeatedly."""

    def __init__(self, dialogue: Mapping[str, list[Any]], place: TwinPlace | None = None) -> None:
        self.place = place or TwinPlace()
        self._left = {key: list(answers) for key, answers in dialogue.items()}
        self.requests: list[str] = []
        self.written: dict[str, str] = {}
        self.closed = False

    def _answer(self, *words: Any) -> Any:
        key = " ".join(map(str, words))
        self.requests.append(key)
        answers = self._left[key]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def check_private(self) -> None:
        self.requests.append("check private")

    def write(self, files: Mapping[str, str], links: Mapping[str, str]) -> None:
        self.written |= files

    def cover(self, name: str, path: str) -> bool:
        return True

    def listen(self, ports: Sequence[int]) -> None:
        self.requests.append("listen")

    def silence(self, ports: Sequence[int]) -> None:
        self.requests.append("silence")

    def folder(self, name: str) -> None:
        self.requests.append(f"folder {name}")

    def remove(self, name: str) -> None:
        self.requests.append(f"remove {name}")

    def copy(self, source: str, target: str) -> None:
        self.requests.append(f"copy {source} {target}")

    def read(self, name: str) -> str:
        return str(self._answer("read", name))

    def daemon(
        self, name: str, argv: Sequence[str], account: CellUser, environment: Mapping[str, str]
    ) -> None:
        self.requests.append(f"daemon {' '.join(argv)} as {account[0]}")

    def stop(self, name: str, number: int, limit: float) -> int:
        self.requests.append(f"stop {name} {int(number)}")
        return 0

    def alive(self, name: str) -> bool:
        return bool(self._answer("alive", name))

    def run(
        self,
        argv: Sequence[str],
        account: CellUser,
        environment: Mapping[str, str],
        stdin: str = "",
        limit: float = 60,
    ) -> CommandResult:
        return CommandResult(*self._answer("run", *argv))

    def close(self) -> None:
        self.closed = True


class RecordingCell(NamespaceCell):
    """Real namespaces whose answers are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.dialogue: dict[str, list[Any]] = {}

    def _keep(self, value: Any, *words: Any) -> None:
        self.dialogue.setdefault(" ".join(map(str, words)), []).append(value)

    def read(self, name: str) -> str:
        text = super().read(name)
        self._keep(text, "read", name)
        return text

    def alive(self, name: str) -> bool:
        answer = super().alive(name)
        self._keep(answer, "alive", name)
        return answer

    def run(
        self,
        argv: Sequence[str],
        account: CellUser,
        environment: Mapping[str, str],
        stdin: str = "",
        limit: float = 60,
    ) -> CommandResult:
        done = super().run(argv, account, environment, stdin, limit)
        self._keep(list(done), "run", *argv)
        return done


def record() -> None:
    slurm = find_slurm()
    assert slurm is not None
    dialogues = {}
    for name, request in REQUESTS.items():
        cell = RecordingCell()
        with Twin(read_cluster(SITE)[0], slurm, cell=_as_cell(cell)) as twin:
            twin.ask(request, as_uid=12345)
        dialogues[name] = cell.dialogue
    FILE.write_text(json.dumps(dialogues, indent=1) + "\n")


def _as_cell(cell: TwinCell) -> TwinCell:
    return cell


def played(name: str) -> PlayedCell:
    """The recorded dialogue of a request."""
    return PlayedCell(json.loads(FILE.read_text())[name])


if __name__ == "__main__":
    record()
