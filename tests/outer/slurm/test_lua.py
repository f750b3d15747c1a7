"""Every Lua file that we ship, under each Lua that a Slurm may be linked against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podwright.guests.slurm.service import Fixed, Mapped, Site, SlurmPod
from podwright.guests.slurm.setup._plan_site_changes import cli_filter, job_submit
from tests.outer.lua import NO_VAL, VERSIONS, Said, run

pytestmark = [pytest.mark.outer]

POD = SlurmPod(type="pod64", cluster="a", devices=64, largest=64, domain=16)
OTHER = SlurmPod(type="odd-one", cluster="b", devices=16, largest=16, domain=16, licence="odd-one")
NATIVE = Site(pods=(POD, OTHER))
SHARED = Site(mode="shared", pods=(POD,), shared="all", default_ipus=-1)
STATIC = Site(
    mode="static",
    partitions=tuple(Fixed(name=f"s{k}", cluster="a", size=4) for k in range(4)),
)
MAPPING = Site(
    mode="host-mapping",
    hosts=tuple(
        Mapped(name=f"n{k}", cluster="a", machines=(f"m{k}",), devices=16, sizes=(16, 32, 64))
        for k in range(1, 4)
    ),
)
EMPTY = {"num_tasks": NO_VAL, "min_nodes": NO_VAL, "max_nodes": NO_VAL, "het_job_offset": NO_VAL}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def submit(version: str, site: Site, folder: Path, *jobs: dict[str, Any]) -> list[Said]:
    """What a site's job_submit.lua says to an ordinary user's jobs."""
    script = folder / "job_submit.lua"
    script.write_text(job_submit(site, folder, (0,), cluster="lab"))
    parts = {"main": {"flag_default": 1, "nodes": "n[1-3],n9"}}
    rows = [{"jd": EMPTY | job, "parts": parts} for job in jobs]
    return run(version, script, "slurm_job_submit(job.jd, job.parts, 1000.0)", rows)


def ipus(*entries: str, **more: Any) -> dict[str, Any]:
    return {"spank_job_env": list(entries), **more}


def test_a_request_becomes_licences_with_whole_numbers(version: str, tmp_path: Path) -> None:
    two, eight, typed, none = submit(
        version,
        NATIVE,
        tmp_path,
        ipus("IPUS=2", num_tasks=2, licenses="matlab:1"),
        ipus("IPUS=8", "NUM_REPLICAS=4", num_tasks=4, tres_per_node="gres:vipu:odd-one"),
        ipus("SPANK_IPUS=1"),
        {"num_tasks": 2},
    )
    assert two.job["licenses"] == (
        "ipu:2,podwright_job:1,ipu_x1:2,ipu_x2:2,podwright_gcds:2,matlab:1"
    )
    assert eight.job["licenses"].startswith("odd-one:8,podwright_job:1,odd-one_x1:8,")
    assert eight.job["licenses"].endswith("odd-one_x8:8,podwright_gcds:4")
    assert typed.job["licenses"] == "ipu:1,podwright_job:1,ipu_x1:1"
    assert {one.job["clusters"] for one in (two, eight, typed)} == {"lab"}
    assert none.accepted
    assert not {"licenses", "clusters"} & set(none.job)


def test_each_part_of_a_heterogeneous_job_keeps_its_size(version: str, tmp_path: Path) -> None:
    parts = [ipus(f"IPUS={n}", num_tasks=1, het_job_offset=k) for k, n in enumerate((16, 8, 4))]
    first, second, third = submit(version, NATIVE, tmp_path, *parts)
    assert first.job["licenses"] == "podwright_het_wait:1"
    said = [one.job["admin_comment"] for one in (first, second, third)]
    assert said == [f"ipus={n} gcds=1 pod=pod64" for n in (16, 8, 4)]


#: What job_submit noted for a part, what somebody writes to its comment, and what becomes of that.
COMMENTS = [
    ("ipus=16 gcds=2 pod=odd-one", "mine", "ipus=16 gcds=2 pod=odd-one; mine"),
    ("ipus=16 gcds=2 pod=a; waits", "ipus=32 gcds=1 pod=a; runs", "ipus=16 gcds=2 pod=a; runs"),
    ("ipus=0", "ipus=4", "ipus=0"),
    ("ipus=8; podwright: x", "", "ipus=8"),
    ("of old", "mine", "mine"),
]


def test_nobody_overwrites_what_a_part_is_to_have(version: str, tmp_path: Path) -> None:
    site = 'function slurm_job_submit(jd) jd.admin_comment = "site"; return slurm.SUCCESS end\n'
    site += "function slurm_job_modify() return slurm.SUCCESS end\n"
    (tmp_path / "job_submit.site.lua").write_text(site)
    some, none, plain = submit(
        version, NATIVE, tmp_path, ipus("IPUS=4", het_job_offset=1), {"het_job_offset": 0}, {}
    )
    assert some.job["admin_comment"] == "ipus=4 gcds=0 pod=pod64; site"
    assert none.job["admin_comment"] == "ipus=0; site"
    assert plain.job["admin_comment"] == "site"
    rows = [{"jd": {"admin_comment": new}, "job": {"admin_comment": old}}
            for old, new, _ in COMMENTS]  # fmt: skip
    script = tmp_path / "job_submit.lua"
    said = run(version, script, "slurm_job_modify(job.jd, job.job, {}, 0.0)", rows)
    assert [one.job["admin_comment"] for one in said] == [right for _, _, right in COMMENTS]


#: What somebody gives a submitted job, whose part of a heterogeneous job it is, and may he?
COUNTS = [
    ("ipu:12,podwright_job:2", 0, False),
    ("podwright_het_wait:1", 0, False),
    ("ipu:12,podwright_job:2", 7, True),
    ("podwright_het_wait:1", 7, True),
    ("ipu:1,podwright_job:1,ipu_x1:1", 0, True),
    ("matlab:1", 0, True),
    (None, 0, True),
]


def test_what_a_heterogeneous_job_counts_no_other_gets(version: str, tmp_path: Path) -> None:
    """Not even of root: the service may mean a job that slurmctld has forgotten."""
    submit(version, NATIVE, tmp_path)
    rows = [{"jd": {"licenses": licences} if licences else {}, "job": {"het_job_id": leader}}
            for licences, leader, _ in COUNTS]  # fmt: skip
    script = tmp_path / "job_submit.lua"
    said = run(version, script, "slurm_job_modify(job.jd, job.job, {}, 0.0)", rows)
    assert [one.accepted for one in said] == [right for *_, right in COUNTS]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"licenses": "ipu;ipu_x1:64"}, "licence ipu is not asked for by name"),
        ({"licenses": "matlab:1;ipu_x1:64"}, "licence ipu_x1 is"),
        ({"licenses": "ipu;podwright_job:1"}, "licence ipu is"),
        ({"licenses": "podwright_job=1"}, "licence podwright_job is"),
        ({"licenses": "matlab|ipu:4"}, "licence ipu is"),
        ({"licenses": " ipu@here"}, "licence ipu is"),
        ({"licenses": "odd-one_x4(n1):4"}, "licence odd-one_x4 is"),
        (ipus("IPUS=4", licenses="ipu:4"), "licence ipu is"),
        (ipus("IPUS=4", licenses="a|b"), "-L 'a|b' with --ipus=4: Slurm takes no licence list"),
        (ipus("IPUS=4", "IPUS=8"), "IPUS was not handed over by --ipus"),
        (ipus("IPUS=4", "SPANK_IPUS=4"), "IPUS was not handed over"),
        (ipus("IPUS=4x"), "IPUS was not handed over by --ipus, --num-replicas or"),
        (ipus("IPUS="), "IPUS was not handed over"),
        (ipus("IPUS=9999999999"), "IPUS was not handed over"),
        (ipus("IPUS=4", "NUM_REPLICAS=%s"), "NUM_REPLICAS was not handed over"),
        (ipus("NUM_REPLICAS=2"), "--num-replicas belongs to --ipus=N"),
        (ipus("IPUS_MOVABLE=1"), "--ipus-movable belongs to --ipus=N"),
        (ipus("IPUS=0", "IPUS_MOVABLE=1"), "--ipus-movable belongs to --ipus=N"),
        (ipus("IPUS=4", "IPUS_MOVABLE=x"), "IPUS_MOVABLE was not handed over"),
        (ipus("IPUS=3"), "--ipus=3: partitions have 1, 2, 4, 8, 16, 32, 64 devices; use 2 or 4"),
        (ipus("IPUS=128"), "--ipus=128: pod64 has 64"),
        (ipus("IPUS=4", num_tasks=3), "3 tasks would be 3 GCDs of 4 devices; use a number"),
        (ipus("IPUS=64", num_tasks=1), "a GCD has at most 16 devices here, so --ipus=64 needs"),
        (ipus("IPUS=8", "NUM_REPLICAS=3"), "3 replicas do not divide evenly over 8 devices in 1"),
        (ipus("IPUS=4", tres_per_node="gres:vipu:%d"), "there is no pod of type '%d'"),
    ],
)  # fmt: skip
def test_what_is_forged_doubled_or_half_is_refused_with_words(
    job: dict[str, Any], words: str, version: str, tmp_path: Path
) -> None:
    (said,) = submit(version, NATIVE, tmp_path, job)
    assert not said.accepted
    assert words in said.words


def test_sizes_are_those_of_the_family(version: str, tmp_path: Path) -> None:
    rings = SlurmPod(type="rings", cluster="a", devices=32, largest=16, domain=32, sizes=(4, 8, 16))
    eight, two, twelve, more = submit(
        version,
        Site(pods=(rings,)),
        tmp_path,
        *(ipus(f"IPUS={n}") for n in (8, 2, 12, 32)),
    )
    assert eight.job["licenses"] == "ipu:8,podwright_job:1,ipu_x4:8,ipu_x8:8"
    assert "--ipus=2: partitions have 4, 8, 16 devices; use 4" in two.words
    assert "--ipus=12: partitions have 4, 8, 16 devices; use 8 or 16" in twelve.words
    assert "the largest partition of rings has 16" in more.words


def test_a_job_in_a_shared_partition_gets_one_host_and_must_say_its_devices(
    version: str, tmp_path: Path
) -> None:
    one, many, silent = submit(
        version, SHARED, tmp_path, ipus("IPUS=4"), ipus("IPUS=4", min_nodes=2), {}
    )
    assert (one.job["min_nodes"], one.job["max_nodes"]) == ("1", "1")
    assert "2 hosts would be as many GCDs" in many.words
    assert "--ipus=N, up to 64" in silent.words


def test_a_request_for_static_partitions_becomes_their_licences(
    version: str, tmp_path: Path
) -> None:
    one, two, over, half, forged, either = submit(
        version,
        STATIC,
        tmp_path,
        {"tres_per_node": "gres:vipu:4", "min_nodes": 2},
        {"licenses": "podwright.gres.4.2,matlab:1", "tres_per_node": "gres:none"},
        {"tres_per_node": "gres:vipu:4:3", "min_nodes": 2},
        {"tres_per_node": "gres:vipu:8"},
        {"licenses": "matlab;vipu_4:2"},
        {"tres_per_node": "gres:vipu:4", "licenses": "a|b"},
    )
    assert one.job["licenses"] == "podwright_job:1,vipu_4:2"
    assert two.job["licenses"] == "podwright_job:1,vipu_4:2,matlab:1"
    assert "asks for 6 partitions of 4 devices, for 2 host(s); there are 4 of vipu:4" in over.words
    assert "a partition of 8 devices, and there is none" in half.words
    assert "licence vipu_4 is not asked for by name" in forged.words
    assert "takes no licence list with |" in either.words


def test_a_job_has_its_mapped_hosts_alone_if_they_make_an_allocation(
    version: str, tmp_path: Path
) -> None:
    named, three, forged, plain = submit(
        version,
        MAPPING,
        tmp_path,
        {"req_nodes": "n[1-2]", "min_nodes": 2, "max_nodes": 2},
        {"req_nodes": "n1,n2,n3", "min_nodes": 3, "max_nodes": 3},
        {"licenses": "a;podwright_job:1"},
        {"partition": "elsewhere"},
    )
    assert (named.job["licenses"], named.job["shared"]) == ("podwright_job:1", "0")
    assert "3 hosts have 48 devices, and an allocation has 16, 32, 64" in three.words
    assert "licence podwright_job is not asked for by name" in forged.words
    assert plain.accepted
    assert "licenses" not in plain.job


@pytest.mark.parametrize(
    ("change", "job", "words"),
    [
        ({"time_limit": 9}, {"licenses": "ipu:4;podwright_job:1"}, ""),
        ({"licenses": "matlab:1"}, {"licenses": "matlab:2"}, ""),
        ({"licenses": "ipu;ipu_x1:64"}, {}, "licence ipu is not asked for by name"),
        ({"licenses": "matlab;podwright_job"}, {"licenses": "ipu:4"}, "licence podwright_job is"),
        ({"licenses": ""}, {"licenses": "ipu:4;podwright_job:1"}, "the licences of a job with"),
        ({"licenses": "matlab"}, {"licenses": "matlab;ipu:4"}, "the licences of a job with"),
        ({"licenses": "matlab"}, {"spank_job_env": ["IPUS=4"]}, "the licences of a job with"),
        ({"num_tasks": 8}, {"licenses": "ipu:4,podwright_gcds:2"}, "submit it anew with -n 8"),
        ({"num_tasks": 8}, {"licenses": "matlab"}, ""),
        ({"clusters": ""}, {"licenses": "ipu:4"}, "stays in cluster lab"),
        ({"clusters": "other"}, {"licenses": "matlab"}, ""),
        ({"tres_per_node": "gres:vipu:4"}, {}, "a submitted job gets no other devices"),
    ],
)  # fmt: skip
def test_modifying_is_checked_by_the_rule_of_submitting(
    change: dict[str, Any], job: dict[str, Any], words: str, version: str, tmp_path: Path
) -> None:
    script = tmp_path / "job_submit.lua"
    script.write_text(job_submit(NATIVE, tmp_path, (0,), cluster="lab"))
    jd = {"num_tasks": NO_VAL, **change}
    for uid in (1000, 0):
        call = f"slurm_job_modify(job.jd, job.known, {{}}, {float(uid)})"
        (said,) = run(version, script, call, [{"jd": jd, "known": job}])
        assert said.accepted is (uid == 0 or not words)
        assert words in said.words or uid == 0


def test_the_clients_filter_turns_gres_into_licences(version: str, tmp_path: Path) -> None:
    script = tmp_path / "cli_filter.lua"
    script.write_text(cli_filter(tmp_path))
    jobs: list[dict[str, Any]] = [
        {"jd": {"gres": "gpu:1,vipu:pod64:2", "licenses": "matlab:1"}},
        {"jd": {"gres": "gres/vipu"}},
        {"jd": {}},
    ]
    both, bare, none = run(version, script, "slurm_cli_pre_submit(job.jd, 0.0)", jobs)
    assert both.job == {"gres": "gpu:1", "licenses": "matlab:1,podwright.gres.pod64.2"}
    assert bare.job == {"gres": "none", "licenses": "podwright.gres."}
    assert none.job == {}


@pytest.mark.parametrize("ours", ["job_submit", "cli_filter"])
def test_the_sites_own_script_runs_after_ours(ours: str, version: str, tmp_path: Path) -> None:
    script = tmp_path / f"{ours}.lua"
    name = "slurm_job_submit" if ours == "job_submit" else "slurm_cli_pre_submit"
    site = f"function {name}(jd) jd.comment = 'seen'; return slurm.SUCCESS end\n"
    (tmp_path / f"{ours}.site.lua").write_text(site)
    script.write_text(
        job_submit(NATIVE, tmp_path, (0,), cluster="lab")
        if ours == "job_submit"
        else cli_filter(tmp_path)
    )
    (said,) = run(version, script, f"{name}(job.jd, {{}}, 1000.0)", [{"jd": dict(EMPTY)}])
    assert said.job["comment"] == "seen"


def test_a_jobs_nodes_are_those_that_reach_its_pod(version: str, tmp_path: Path) -> None:
    far = SlurmPod(
        type="far", cluster="b", devices=16, largest=16, domain=16, licence="far", feature="f"
    )
    site = Site(pods=(POD, far))
    asked = {"spank_job_env": ["IPUS=4"], "tres_per_node": "gres:vipu:far"}
    none, both, there, other, either, counted, near = submit(
        version,
        site,
        tmp_path,
        asked,
        asked | {"features": "big&fast"},
        asked | {"features": "big&f"},
        asked | {"features": "ff"},
        asked | {"features": "big|fast"},
        asked | {"features": "[big*2&fast*1]"},
        ipus("IPUS=4", features="big|fast"),
    )
    assert none.job["features"] == "f"
    assert both.job["features"] == "big&fast&f"
    assert there.job["features"] == "big&f"
    assert other.job["features"] == "ff&f"
    assert near.job["features"] == "big|fast", "all nodes reach that one"
    for said in (either, counted):
        assert not said.accepted
        assert "only nodes with feature f reach" in said.words
    part = submit(version, site, tmp_path, asked | {"het_job_offset": 1})[0]
    assert part.job["features"] == "f"
    script = tmp_path / "job_submit.lua"
    jobs = [
        {"jd": {"features": "x"}, "job": {"spank_job_env": env}} for env in (["IPUS=4"], ["X=1"])
    ]
    moved, plain = run(version, script, "slurm_job_modify(job.jd, job.job, {}, 1000.0)", jobs)
    assert not moved.accepted
    assert "reach its pod" in moved.words
    assert plain.accepted
