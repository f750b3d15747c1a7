"""A job gets devices only if its request agrees with what Slurm counts for it."""

from __future__ import annotations

import msgspec
import pytest

from podwright.guests.slurm.service import HookJob, Listed, Site, SlurmPod, parse_licences
from podwright.guests.slurm.service._job_start_text import Life, life
from podwright.guests.slurm.service._licence_check import (
    LicencesDiffer,
    StartIsOver,
    expected_licences,
    wanted,
)

POD = SlurmPod(type="pod16", cluster="a", devices=16, largest=16, domain=16)
OTHER = SlurmPod(type="big", cluster="b", devices=64, largest=64, domain=64, licence="big")
SITE = Site(pods=(POD, OTHER))
EMPTY = Listed(7, "CONFIGURING", 0, 0, 1, "None", "", "", "")


def listed(size: int, pod: SlurmPod = POD, separator: str = ",", also: str = "") -> str:
    words = [f"{name}:{n}" for name, n in expected_licences(pod, size).items()]
    return separator.join([*words, *([also] if also else [])])


def asked(ipus: str, licences: str, **more: str | int) -> HookJob:
    return msgspec.structs.replace(HookJob(job=7, uid=5, ipus=ipus, licences=licences), **more)


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize(("pod", "size"), [(POD, 1), (POD, 4), (POD, 16), (OTHER, 64)])
def test_a_job_whose_request_and_licences_agree_gets_devices(
    pod: SlurmPod, size: int, separator: str
) -> None:
    licences = listed(size, pod, separator, "podwright_gcds:2")
    found = wanted(asked(str(size), licences + ";matlab:3"), EMPTY, SITE)
    assert found == (pod, size, 2)


@pytest.mark.parametrize(
    ("ipus", "licences"),
    [
        ("4", ""),  # a slurm.conf that lost them
        ("4", "matlab:1"),
        ("4", listed(8)),
        ("8", listed(4)),
        ("4", listed(4, OTHER) + "," + listed(4)),
        ("4", listed(4) + ";ipu_x8:4"),
        ("4", listed(4) + ";" + listed(4)),  # doubled
        ("4", "ipu:4;podwright_job:1"),  # half
        ("4", "ipu:4,ipu_x1:4,ipu_x2:4,ipu_x4:4"),
        ("4", listed(4) + ",podwright_het_wait:1"),
        ("", listed(4)),
        ("0", listed(4)),
        ("4x", listed(4)),
        ("٤", listed(4)),
        ("9" * 5000, listed(4)),  # more digits than int() takes
        ("4", listed(4) + ",ipu:" + "9" * 5000),
    ],
)
def test_a_job_whose_request_and_licences_differ_gets_none(ipus: str, licences: str) -> None:
    with pytest.raises(LicencesDiffer):
        wanted(asked(ipus, licences), EMPTY, SITE)


def test_a_refusal_of_differing_licences_names_the_command_that_mends_it() -> None:
    with pytest.raises(
        LicencesDiffer, match="asked for 4 devices by --ipus, and Slurm counts no lic"
    ) as e:
        wanted(asked("4", ""), EMPTY, SITE)
    assert f"licenses={listed(4)}" in str(e.value)


@pytest.mark.parametrize(
    ("comment", "ipus", "found"),
    [
        ("ipus=32 gcds=2 pod=big; waits", "32", (OTHER, 32, 2)),
        ("", "", None),
        ("something else", "0", None),
    ],
)
def test_a_part_gets_what_it_asked_for_itself(
    comment: str, ipus: str, found: tuple[SlurmPod, int, int] | None
) -> None:
    part = EMPTY._replace(het=6, comment=comment)
    assert wanted(asked(ipus, "", het_job=6), part, SITE) == found


@pytest.mark.parametrize(
    ("comment", "ipus", "words"),
    [
        ("ipus=32 gcds=1 pod=big", "16", "32 were noted"),  # overwritten by the leader's
        ("ipus=32 gcds=1 pod=big", "", "did not ask by --ipus"),
        ("ipus=0", "16", "0 were noted"),
        ("", "16", "is not noted in its AdminComment any more"),
        ("an administrator's words", "16", "is not noted in its AdminComment any more"),
    ],
)
def test_a_part_whose_note_differs_gets_nothing(comment: str, ipus: str, words: str) -> None:
    part = EMPTY._replace(het=6, comment=comment)
    for site in (SITE, Site(pods=(POD,))):
        with pytest.raises(LicencesDiffer, match=words):
            wanted(asked(ipus, "", het_job=6), part, site)


def test_another_users_job_and_an_earlier_start_get_nothing() -> None:
    with pytest.raises(StartIsOver, match="is of user 9"):
        wanted(asked("4", listed(4)), EMPTY._replace(uid=9), SITE)
    with pytest.raises(StartIsOver, match="start 0 of job 7, which is over"):
        wanted(asked("4", listed(4)), EMPTY._replace(restart=1), SITE)
    for het, leader, words in ((0, 6, "no part of another now"), (8, 0, "a part of job 8 now")):
        with pytest.raises(StartIsOver, match=words):
            wanted(asked("4", listed(4), het_job=leader), EMPTY._replace(het=het), SITE)
    with pytest.raises(StartIsOver, match="slurmctld knows no job 7"):
        wanted(asked("4", "", het_job=6), None, SITE)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("ipu:4;podwright_job:1,x", {"ipu": 4, "podwright_job": 1, "x": 1}),
        ("a|b:2", {"a": 1, "b": 2}),
        ("ipu=4;ipu:2", {"ipu": 6}),
        ("lic@server:3;;", {"lic": 3}),
        ("ipu:x,:3,", {}),
    ],
)
def test_licences_are_read_as_slurm_writes_and_reads_them(
    text: str, counts: dict[str, int]
) -> None:
    assert parse_licences(text) == counts


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (Life(7), "7"),
        (Life(8, 2, 7), "8/2 of 7"),
        (Life(7, 1, 0, "lab", 1763791311), "7/1, cluster lab, submitted 2025-11-22T06:01:51Z"),
        (Life(7, 0, 0, "", 1763791311), "7, submitted 2025-11-22T06:01:51Z"),
    ],
)
def test_a_start_is_read_as_it_was_written(start: Life, words: str) -> None:
    assert start.words == words
    assert life(words) == start


@pytest.mark.parametrize("words", ["", "seven", "7, submitted yesterday", "7 and more"])
def test_other_words_are_no_start_of_a_job(words: str) -> None:
    assert life(words) is None
