"""`sbatch --test-only` beside the counts: when a job starts, and why it is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from podwright.gpu import requests
from podwright.gpu.requests import CountedJob, RequestAnswer, SlurmRefusal, SlurmRequest, Texts
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
    return ask_site(request, lambda words: CommandResult(code, "", text))


def ask_site(
    request: SlurmRequest, run: Callable[[Sequence[str]], CommandResult], texts: Texts = TEXTS
) -> RequestAnswer:
    where = requests.asked_site(texts, requests.read_site(texts), live=False)
    known_site = requests.KnownSite(where, (26, 5), live=True)
    sources = requests.AnswerSources(local=False, test_only=run)
    return requests.explain_request(request, known_site, (26, 5), sources)


@pytest.mark.parametrize("text", [STARTS, STARTS.replace(" using", " a using")])  # 22.05, 26.05
def test_when_the_job_starts_is_told(text: str) -> None:
    answer = explain("--gpus=2", text)
    assert isinstance(answer.answer, CountedJob)
    assert answer.answer.starts == "2026-11-26T05:13:00"
    assert (answer.judgement.says, answer.judgement.source) == ("yes", "`sbatch --test-only`")
    assert any(step.startswith("sbatch --test-only printed: ") for step in answer.steps)
    request = requests.parse_request(["--gpus=2"])
    assert "start it at 2026-11-26T05:13:00." in requests.sentence(request, answer.answer)
    assert requests.as_json(request, answer.answer)["granted"] is True


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--gpus=2", "Requested node configuration is not available"),
        (
            "--gpus=3 --gpus-per-node=2",
            "Requested node configuration is not available. --gpus=3 is not a multiple",
        ),
    ],
)
def test_a_refusal_has_slurms_words_and_ours_where_they_agree(options: str, reason: str) -> None:
    answer = explain(options, REFUSED, 1).answer
    assert isinstance(answer, SlurmRefusal)
    assert (answer.stage, answer.reason[: len(reason)]) == ("submit", reason)


def test_a_job_that_slurm_takes_against_the_counts_is_not_known() -> None:
    answer = explain("--gpus=3 --gpus-per-node=2", STARTS).answer
    assert isinstance(answer, SlurmRefusal)
    assert answer.stage == "unknown"


def test_a_time_limit_is_ours_to_look_at() -> None:
    """--test-only takes a job beyond the partition's time, which then waits."""
    limited = replace(TEXTS, partitions=re.sub(r"MaxTime=\S+", "MaxTime=60", TEXTS.partitions))

    def ask(*options: str) -> RequestAnswer:
        request = requests.parse_request(["--gpus=1", *options])
        return ask_site(request, lambda words: CommandResult(0, "", STARTS), limited)

    assert [ask(*limit).judgement.says for limit in ((), ("--time=60",))] == ["yes", "yes"]
    for limit in ("--time=0", "--time=61"):
        answer = ask(limit).answer
        assert isinstance(answer, SlurmRefusal)
        assert (answer.stage, "PartitionTimeLimit" in answer.reason) == ("waits", True)
    assert ask("--time=5", "--partition=other").judgement.says == "not known"


def test_a_command_that_reaches_no_controller_says_nothing() -> None:
    for text, code in ((AWAY, 1), ("", 127), ("", 0)):
        answer = explain("--gpus=2", text, code)
        assert isinstance(answer.answer, CountedJob)
        assert answer.answer.starts == ""
        assert answer.judgement.says == "not known"


def test_what_is_asked_names_no_file_and_no_program_of_the_user() -> None:
    commands: list[list[str]] = []

    def run(words: Sequence[str]) -> CommandResult:
        commands.append(list(words))
        return CommandResult(0, "", "")

    for command in ("sbatch", "salloc", "srun"):
        request = requests.parse_request(["--gpus=2", "--chdir=/home/x", "--qos=q"], command)
        answer = ask_site(request, run)
        assert any("--chdir" in option for option in answer.judgement.left_out)
    batch = ["sbatch", "--test-only", "--wrap=true", "--gpus=2", "--qos=q"]
    assert commands == [batch, batch, ["srun", "--test-only", "--gpus=2", "--qos=q", "true"]]
