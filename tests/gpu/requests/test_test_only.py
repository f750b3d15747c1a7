"""`sbatch --test-only` beside the counts: when a job starts, and why it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from podwright.gpu import requests
from podwright.gpu.requests import CountedJob, RequestAnswer, SlurmRefusal
from podwright.slurm.site.command_result import CommandResult
from tests.slurm.twin.recorded import read_texts

TEXTS = read_texts("26.05.5", "1")
STARTS = (
    "sbatch: Job 17 to start at 2026-11-26T05:13:00 using 2 processors on nodes n4 in partition m\n"
)
REFUSED = "allocation failure: Requested node configuration is not available\n"
AWAY = "sbatch: error: Batch job submission failed: Unable to contact slurm controller\n"


def explain(options: str, text: str, code: int = 0, command: str = "sbatch") -> RequestAnswer:
    request = requests.parse_request(options.split(), command)
    where = requests.asked_site(TEXTS, requests.read_site(TEXTS), live=False)
    return requests.explain_by_counts(
        request, where, (26, 5), lambda words: CommandResult(code, "", text)
    )


@pytest.mark.parametrize("text", [STARTS, STARTS.replace(" using", " a using")])  # 22.05, 26.05
def test_when_the_job_starts_is_told(text: str) -> None:
    answer = explain("--gpus=2", text)
    assert isinstance(answer.answer, CountedJob)
    assert answer.answer.starts == "2026-11-26T05:13:00"
    assert "tested by `sbatch --test-only`" in answer.source
    assert any(step.startswith("sbatch --test-only printed: ") for step in answer.steps)
    request = requests.parse_request(["--gpus=2"])
    assert "start it at 2026-11-26T05:13:00." in requests.sentence(request, answer.answer)
    assert requests.as_json(request, answer.answer)["granted"] is True


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--gpus=2", "Requested node configuration is not available"),
        ("--gpus=500", "Requested node configuration is not available. The job needs 500 GPUs"),
    ],
)
def test_a_refusal_has_slurms_words_and_ours_where_they_agree(options: str, reason: str) -> None:
    answer = explain(options, REFUSED, 1).answer
    assert isinstance(answer, SlurmRefusal)
    assert (answer.stage, answer.reason[: len(reason)]) == ("submit", reason)


def test_a_job_that_slurm_takes_against_the_counts_is_not_known() -> None:
    answer = explain("--gpus=500", STARTS).answer
    assert isinstance(answer, SlurmRefusal)
    assert answer.stage == "unknown"


def test_a_time_limit_is_ours_to_look_at() -> None:
    """--test-only takes a job beyond the partition's time, which then waits."""
    site = requests.read_site(TEXTS)
    limited = tuple(replace(partition, max_time=60) for partition in site.partitions)
    where = requests.asked_site(TEXTS, replace(site, partitions=limited), live=False)
    answer = requests.explain_by_counts(
        requests.parse_request(["--gpus=1", "--time=0"]),
        where,
        (26, 5),
        lambda words: CommandResult(0, "", STARTS),
    ).answer
    assert isinstance(answer, SlurmRefusal)
    assert (answer.stage, "PartitionTimeLimit" in answer.reason) == ("waits", True)


def test_a_command_that_reaches_no_controller_says_nothing() -> None:
    for text, code in ((AWAY, 1), ("", 127), ("", 0)):
        answer = explain("--gpus=2", text, code)
        assert isinstance(answer.answer, CountedJob)
        assert answer.answer.starts == ""
        assert "--test-only" not in answer.source


def test_what_is_asked_names_no_file_and_no_program_of_the_user() -> None:
    commands: list[list[str]] = []

    def run(words: Sequence[str]) -> CommandResult:
        commands.append(list(words))
        return CommandResult(0, "", "")

    where = requests.asked_site(TEXTS, requests.read_site(TEXTS), live=False)
    for command in ("sbatch", "salloc", "srun"):
        request = requests.parse_request(["--gpus=2", "--chdir=/home/x", "--qos=q"], command)
        requests.explain_by_counts(request, where, (26, 5), run)
    batch = ["sbatch", "--test-only", "--wrap=true", "--gpus=2", "--qos=q"]
    assert commands == [batch, batch, ["srun", "--test-only", "--gpus=2", "--qos=q", "true"]]
