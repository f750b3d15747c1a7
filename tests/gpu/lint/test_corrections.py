"""A correction is made first: it is offered only if lint has nothing against the script then."""

from __future__ import annotations

from collections import Counter

import pytest

from podwright.gpu.lint import LintSettings, check_script, fix, fixed, lint, read_script
from podwright.gpu.lint._site_cache import CachedSite
from tests.gpu.lint.test_starts import MEET, TWO, WRONG
from tests.gpu.requests.test_lint import BAD, expectation
from tests.gpu.requests.wordings import BETTER, MISTAKES, script

#: (rule, script): the line alone cannot be corrected, since something else hangs on it.
BY_WORDS = [
    (
        "launcher-in-every-task",
        TWO.replace("ntasks-per-node=1", "ntasks-per-node=8")
        + "srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$SLURM_NTASKS_PER_NODE "
        f"--rdzv_id=$RANDOM {MEET} train.py\n",
    ),
    (
        "launcher-in-every-task",
        TWO.replace("ntasks-per-node=1", "ntasks-per-node=8")
        + "srun python -m torch.distributed.launch --nproc_per_node=8 train.py\n",
    ),
    (
        "hidden-peers",
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks=4\n#SBATCH --gpus-per-task=2\n"
        "#SBATCH --cpus-per-task=4\n#SBATCH --exclusive\n"
        f"srun torchrun --nnodes 4 --nproc_per_node 1 {MEET} train.py\n",
    ),
]


@pytest.mark.parametrize(("rule", "text"), BY_WORDS)
def test_a_correction_that_breaks_something_else_is_advice_in_words(rule: str, text: str) -> None:
    (found,) = [one for one in lint(read_script(text), better=True) if one.rule == rule]
    assert found.corrected == ""
    assert found.reason


def test_a_correction_of_one_place_is_offered() -> None:
    text = TWO.replace("ntasks-per-node=1", "ntasks-per-node=8") + (
        f"srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 {MEET} train.py\n"
    )
    (found,) = lint(read_script(text))
    assert found.corrected == "#SBATCH --ntasks-per-node=1"
    assert lint(read_script(fixed(text, [found._replace(sure=True)]))) == []


def every_script() -> list[tuple[str, CachedSite | None]]:
    worded = [
        (script(text), None)
        for _, rows in (*MISTAKES.values(), *BETTER.values())
        for _, text in rows
    ]
    starts = [(f"{TWO}{command}\n", None) for _, _, command in WRONG]
    bad = [(path.read_text(), expectation(path.read_text())[2]) for path in BAD]
    return [*worded, *starts, *bad]


def test_no_correction_that_is_offered_adds_a_finding() -> None:
    offered = 0
    for text, site in every_script():
        before = lint(read_script(text), site, better=True)
        for finding in before:
            if not finding.corrected or finding.sure:
                continue
            offered += 1
            after = lint(read_script(fixed(text, [finding._replace(sure=True)])), site, better=True)
            rest = Counter(one.rule for one in before)
            rest[finding.rule] -= 1
            assert Counter(one.rule for one in after) <= rest, (finding, text)
    assert offered > 20


def test_a_chain_of_sure_corrections_ends_without_any_that_is_left() -> None:
    for text, site in every_script():
        after = fix(text, site, better=True)
        assert not [one for one in lint(read_script(after), site, better=True) if one.sure], text


def test_no_mistakes_found_says_what_was_not_judged() -> None:
    checked = check_script("a.sh", f"{TWO}ibrun ./train\n", CachedSite(), LintSettings())
    assert checked.lines(alone=True) == [
        "a.sh: no mistakes found; not judged is what this starts: ibrun (line 7)"
    ]
    odd = check_script(
        "a.sh", f"{TWO}#SBATCH --foo=3\nsrun ./train\n", CachedSite(), LintSettings()
    )
    assert odd.lines(alone=True) == [
        "a.sh: no mistakes found; sbatch has no option --foo; a plugin of the site may have it"
        " (line 7)"
    ]
    judged = check_script("a.sh", f"{TWO}srun ./train\n", CachedSite(), LintSettings())
    assert judged.lines(alone=True) == ["a.sh: no mistakes found"]
