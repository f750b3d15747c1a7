"""An error in a description of hardware, as a type that carries its position."""

from __future__ import annotations


class FabricError(ValueError):
    """A cluster file cannot be used.

    path: the file. line: counted from 1; 0 when the error concerns the whole file. key_path:
    written like `link_domains[1].machines[0].port`, or empty. problem, would_work: sentences
    without their full stop; would_work may be empty.
    """

    def __init__(
        self, path: str, line: int, key_path: str, problem: str, would_work: str = ""
    ) -> None:
        self.path = path
        self.line = line
        self.key = key_path
        self.problem = problem
        self.would_work = would_work
        position = f"{path}:{line}" if line else path
        sentence = ": ".join(part for part in (position, key_path, problem) if part)
        advice = would_work if would_work.endswith("?") else f"{would_work}."
        super().__init__(f"{sentence}. {advice}" if would_work else f"{sentence}.")
