"""A release that renames a field: who needs it says `not known: FIELD`, and nobody else notices."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from podwright.errors import FieldNotKnown
from podwright.gpu import requests
from podwright.gpu.configure import read_grant
from podwright.gpu.lint import read_site as lint_site
from podwright.gpu.requests import Texts, parse_request
from podwright.gpu.templates import Fit, of_slurm
from podwright.slurm.reader import (
    JobRecord,
    ReservationRecord,
    SlurmConfig,
    SlurmNode,
    SlurmPartitionRecord,
    read_jobs,
    read_nodes,
    read_partitions,
    read_reservations,
)
from podwright.slurm.reader._scontrol_records import FieldRecord
from tests.slurm.reader import texts

Outputs = dict[str, str]
#: Each kind of record: its reader, its type, and an output that has every field that is read.
KINDS: dict[str, tuple[Callable[[str], list[Any]], type, str]] = {
    "nodes": (
        read_nodes,
        SlurmNode,
        texts.node(
            CPUSpecList="0-1",
            MemSpecLimit="100",
            CpuBind="cores",
            Reason="x",
            GresUsed="gpu:0(IDX:N/A)",
        ),
    ),
    "partitions": (
        read_partitions,
        SlurmPartitionRecord,
        texts.partition(Alternate="other", Topology="t", CpuBind="cores"),
    ),
    "jobs": (
        read_jobs,
        JobRecord,
        texts.job("RUNNING", HetJobId="7", TresPerJob="gres/gpu:1", TresPerSocket="gres/gpu:1")
        + texts.job("PENDING"),
    ),
    "reservations": (
        read_reservations,
        ReservationRecord,
        texts.recorded("26.05.5", "reservations"),
    ),
}
CONFIG = texts.config(GresTypes="gpu")


def facts(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if isinstance(value, property)]


def fields_read(kind: str) -> list[str]:
    """The fields that the typed reader reads, by what it asks of a record."""
    read, type_, text = KINDS[kind]
    seen: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("text", "is_set"):
            plain = getattr(FieldRecord, name)

            def noted(self: FieldRecord, field: str, plain: Any = plain) -> Any:
                seen.add(field)
                return plain(self, field)

            patch.setattr(FieldRecord, name, noted)
        for record in read(text):
            for name in facts(type_):
                getattr(record, name)
    return sorted(seen)


def renamed(text: str, field: str) -> str:
    return re.sub(rf"(^|\s){re.escape(field)}=", r"\1Renamed=", text, flags=re.M)


FIELDS = [(kind, field) for kind in KINDS for field in fields_read(kind)]


def answer(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except FieldNotKnown as error:
        return error.problem


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_each_fact_is_the_same_or_not_known(kind: str, field: str) -> None:
    read, type_, text = KINDS[kind]
    if field not in re.findall(r"(?:^|\s)([A-Z][\w:/]*)=", text):
        return  # another release's
    before, after = read(text), answer(lambda: read(renamed(text, field)))
    if isinstance(after, str):
        assert f"not known: {field}" in after
        return
    lost = []
    for old, new in zip(before, after, strict=True):
        for name in facts(type_):
            now = answer(partial(getattr, new, name))
            if now != getattr(old, name):
                lost.append(str(now))
    assert any(re.search(rf"not known: .*\b{re.escape(field)}\b", text) for text in lost), lost
    # A fact that is left out where it is unset is in doubt as well; what else changes is a name
    # that a user chose, into which a renamed field may run.
    assert all("not known: " in text or "Renamed=" in text for text in lost), lost


def explained(outputs: Outputs) -> Any:
    site = requests.read_site(Texts(outputs["config"], outputs["nodes"], outputs["partitions"]))
    given = parse_request(["--gpus=1", "--mem=64G"], "sbatch")
    asked = requests.asked_site(Texts(outputs["config"], outputs["nodes"]), site, live=False)
    known = requests.KnownSite(asked, (26, 5))
    sources = requests.AnswerSources(local=False)
    return requests.explain_request(given, known, (26, 5), sources).judgement.because


def fitted(outputs: Outputs) -> Fit:
    nodes, config = read_nodes(outputs["nodes"]), SlurmConfig(outputs["config"])
    return of_slurm(requests.read_shape(nodes, config), config, nodes)


CONSUMERS: dict[str, Callable[[Outputs], Any]] = {
    "explain-request": explained,
    "template": fitted,
    "adopt": lambda outputs: read_grant(outputs["jobs"]),
    "lint": lambda outputs: lint_site(outputs["config"], outputs["partitions"], ""),
}
WHOLE: Outputs = {"config": CONFIG, **{kind: text for kind, (_, _, text) in KINDS.items()}}
WHOLE["nodes"] = texts.node()  # without what only some sites set
WHOLE["partitions"] = texts.partition()
WHOLE["jobs"] = texts.job("RUNNING") + texts.job("PENDING")


def differences(before: Any, after: Any) -> list[str]:
    """The leaves of two answers that differ, as they are afterwards."""
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        return [text for key in before for text in differences(before[key], after[key])]
    rows = isinstance(before, list | tuple) and type(before) is type(after)
    if rows and len(before) == len(after):
        pairs = zip(before, after, strict=True)
        return [text for old, new in pairs for text in differences(old, new)]
    return [] if before == after else [str(after)]


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_each_answer_is_the_same_or_says_what_is_not_known(
    consumer: str, kind: str, field: str
) -> None:
    outputs = {**WHOLE, kind: renamed(WHOLE[kind], field)}
    ask = CONSUMERS[consumer]
    before, after = ask(WHOLE), answer(lambda: ask(outputs))
    for text in differences(before, after):
        known = consumer == "lint" and text in ("None", "inf", "{}", "")
        assert known or "not known: " in text.lower() or "Renamed=" in text, text


SETTINGS = (
    *("SLURM_VERSION", "SelectType", "SelectTypeParameters", "SchedulerParameters", "GresTypes"),
    *("EnforcePartLimits", "TaskPlugin", "TaskPluginParam", "AllowSpecResourcesUsage"),
    *("TopologyPlugin", "TopologyParam", "AccountingStorageEnforce", "JobSubmitPlugins"),
    *("CliFilterPlugins", "DefMemPerNode", "MaxMemPerNode", "JobDefaults"),
)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_is_renamed_is_named_by_explain_request(setting: str) -> None:
    outputs = {**WHOLE, "config": re.sub(rf"^{setting} ", "Renamed ", CONFIG, flags=re.M)}
    assert re.search(rf"Not known: .*{setting}", explained(outputs))
    assert "Not known" not in explained(WHOLE)


def test_memory_that_is_not_shown_refuses_nothing() -> None:
    outputs = {**WHOLE, "nodes": renamed(WHOLE["nodes"], "RealMemory")}
    assert re.match(r"Not known: .*RealMemory \(node n1\)", explained(outputs))
