"""What configure writes can be taken back byte for byte, whatever the site's files look like."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.errors import InvalidRequest
from podwright.guests.slurm.service import Site, SlurmPod, load
from podwright.guests.slurm.setup import (
    NativePlaces,
    check_server,
    far_door,
    native,
    server_host,
    slurm_user,
    undo,
    window,
)
from podwright.slurm.site.conf_lines import settings
from podwright.slurm.site.edit import append_own_line, changed, undone
from podwright.slurm.site.file_changes import as_diff, carry_out
from tests.slurm.site_files import everything, make_site

SITE = Site(
    pods=(SlurmPod(type="pod64", cluster="pod64", devices=64, largest=64, domain=64),),
    socket="/tmp/slurm.sock",
)
LINES = st.lists(
    st.sampled_from(
        [
            "ClusterName=x\n",
            "licenses = matlab:4  # bought\n",
            "# PrologSlurmctld=/old\n",
            "PrologSlurmctld=/site/prolog\n",
            "SchedulerParameters=defer,bf_max_job_test=50\n",
            "\n",
            "NodeName=n[1-4] CPUs=4 \\\n   State=UNKNOWN\n",
            "  JobSubmitPlugins=throttle\r\n",
        ]
    ),
    unique=True,
)


@given(LINES, st.booleans())
def test_any_file_comes_back(lines: list[str], cut: bool) -> None:
    text = "".join(lines)
    if cut:
        text = text.rstrip("\n")
    wanted = {"Licenses": "ipu:4", "PrologSlurmctld": "/ours", "JobSubmitPlugins": "lua"}
    after = changed(text, wanted, "slurm.conf")
    assert settings(after)["licenses"] == "ipu:4"
    assert settings(after)["prologslurmctld"] == "/ours"
    assert changed(after, wanted, "slurm.conf") == after
    assert undone(after) == text
    assert undone(append_own_line(text, "optional x.so")) == text


def test_a_setting_over_two_lines_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="several lines"):
        changed("Licenses=a,\\\nb\n", {"Licenses": "ipu:4"}, "slurm.conf")


@pytest.fixture
def places(tmp_path: Path) -> NativePlaces:
    return make_site(tmp_path)


def test_a_site_that_has_all_of_them_keeps_them_and_gets_them_back(
    places: NativePlaces, tmp_path: Path
) -> None:
    before = everything(tmp_path)
    plan = native(places, SITE)
    said = as_diff(plan)
    assert everything(tmp_path) == before, "looking changes nothing"
    assert "+Licenses=matlab:4,ipu:64,ipu_x1:64" in said
    carry_out(plan)
    now = settings((places.slurm_conf).read_bytes().decode("utf-8", "surrogateescape"))
    assert now["jobsubmitplugins"] == "lua"
    assert now["propagateresourcelimitsexcept"] == "MEMLOCK"
    assert now["accountingstoragetres"] == "license/ipu"
    hook = (places.folder / "hook.conf").read_text()
    assert "before-prolog-slurmctld /site/p\n" in hook
    assert "before-epilog-slurmctld /site/e\n" in hook
    assert (places.etc / "job_submit.site.lua").read_text() == "function slurm_job_submit() end\n"
    assert (places.etc / "plugstack.conf").read_text().startswith("required site.so\n")
    assert load(places.folder / "native.toml") == SITE
    assert as_diff(native(places, SITE)) == "", "twice is once"
    carry_out(undo(places))
    assert everything(tmp_path) == before


def test_what_changed_meanwhile_is_kept(places: NativePlaces) -> None:
    carry_out(native(places, SITE))
    with places.slurm_conf.open("ab") as file:
        file.write(b"MaxJobCount=5\n")
    carry_out(undo(places))
    text = places.slurm_conf.read_bytes()
    assert b"MaxJobCount=5" in text
    assert b"podwright" not in text


def test_a_licence_that_the_site_has_is_not_taken(places: NativePlaces) -> None:
    places.slurm_conf.write_text("Licenses=ipu:3\n")
    with pytest.raises(InvalidRequest, match="a licence ipu already"):
        native(places, SITE)


def test_a_site_file_with_a_fault_is_named(tmp_path: Path) -> None:
    path = tmp_path / "native.toml"
    for text in ("pods = 3", "[[pod]]\ntype = 1\n", "", "x ="):
        path.write_text(text)
        with pytest.raises(InvalidRequest, match=r"native\.toml"):
            load(path)


@pytest.mark.parametrize("name", ["slurm.conf", "plugstack.conf"])
def test_an_edit_of_our_line_is_named_and_nothing_is_changed(
    places: NativePlaces, tmp_path: Path, name: str
) -> None:
    carry_out(native(places, SITE))
    file = places.etc / name
    old, new = (
        (b"matlab:4,", b"matlab:8,") if name == "slurm.conf" else (b" port=8090", b" port=8091")
    )
    text = file.read_bytes()
    # The last one: before ours stands what it replaced.
    at = text.rindex(old)
    file.write_bytes(text[:at] + new + text[at + len(old) :])
    before = everything(tmp_path)
    said = rf"{name}, line \d+ is Podwright's and was edited"
    with pytest.raises(InvalidRequest, match=said):
        native(places, SITE)
    with pytest.raises(InvalidRequest, match=said):
        undo(places)
    assert everything(tmp_path) == before


def test_a_line_without_our_mark_is_the_sites_own_again(places: NativePlaces) -> None:
    carry_out(native(places, SITE))
    lines = places.slurm_conf.read_bytes().splitlines(keepends=True)
    at = next(k for k, line in enumerate(lines) if line.startswith(b"Licenses="))
    lines[at] = b"Licenses=matlab:8\n"
    places.slurm_conf.write_bytes(b"".join(lines))
    carry_out(native(places, SITE))
    assert b"\nLicenses=matlab:8,ipu:64,ipu_x1:64" in places.slurm_conf.read_bytes()
    carry_out(undo(places))
    text = places.slurm_conf.read_bytes()
    assert b"Licenses=matlab:8\n" in text
    assert b"matlab:4" not in text


def test_a_setting_of_ours_in_an_included_file_is_refused_by_its_name(places: NativePlaces) -> None:
    with places.slurm_conf.open("ab") as file:
        file.write(b"\ninclude more.conf\n")
    (places.etc / "more.conf").write_text("Include deeper.conf\nSlurmUser=daemon\n")
    (places.etc / "deeper.conf").write_text("SchedulerParameters=bf_interval=20\n")
    assert slurm_user(places.slurm_conf) == "daemon"
    assert window(places.slurm_conf) == 40
    with pytest.raises(InvalidRequest, match=r"deeper\.conf, included by .* sets schedulerparam"):
        native(places, SITE)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("", 60), ("bf_interval=30", 60), ("defer,bf_interval=8", 16), ("bf_interval=1", 10)],
)
def test_the_window_is_two_backfill_intervals(
    places: NativePlaces, words: str, seconds: int
) -> None:
    places.slurm_conf.write_text(f"SchedulerParameters={words}\n")
    assert window(places.slurm_conf) == seconds


@pytest.mark.parametrize(
    ("nodes", "said", "server", "host"),
    [
        ("NodeName=n[1-4] NodeHostname=localhost", None, None, "localhost"),
        ("NodeName=DEFAULT CPUs=4\nNodeName=n1 NodeAddr=127.0.0.1", None, None, "localhost"),
        ("NodeName=n[1-4] CPUs=4", None, None, "10.0.0.1"),
        ("NodeName=n[1-4] \\\n CPUs=4", None, "pod-a", "pod-a"),
        ("NodeName=n1", "10.0.0.9", "localhost", "10.0.0.9"),
        ("NodeName=n1", "localhost", None, ""),
        ("NodeName=n1", "127.0.1.1", None, ""),
        ("NodeName=n1", None, "localhost", ""),
        ("Include nodes.conf", "localhost", None, ""),
    ],
)
def test_nodes_are_told_an_address_that_they_reach(
    places: NativePlaces, nodes: str, said: str | None, server: str | None, host: str
) -> None:
    (places.etc / "nodes.conf").write_text("NodeName=far1\n")
    places.slurm_conf.write_text(f"SlurmctldHost=ctl(10.0.0.1)\n{nodes}\n")
    if host:
        assert server_host(places.slurm_conf, said, server) == host
    else:
        with pytest.raises(InvalidRequest, match="on their own host"):
            server_host(places.slurm_conf, said, server)


def test_each_slurmctld_has_a_service_beside_it(places: NativePlaces) -> None:
    one = "SlurmctldHost=a(10.0.0.1)\nNodeName=n1\n"
    places.slurm_conf.write_text(one)
    assert far_door(places.slurm_conf) == "10.0.0.1:8092"
    check_server(places.slurm_conf, "")
    places.slurm_conf.write_text(f"{one}slurmctldhost = b\nSlurmctldHost=c(fd00::3)\n")
    doors = far_door(places.slurm_conf)
    assert doors == "10.0.0.1:8092,b:8092,[fd00::3]:8092"
    for server in ("", "/run/podwright/server.sock", "tcp:localhost:8090", "tcp:pod:1,127.0.0.1:2"):
        with pytest.raises(InvalidRequest, match="on a and b and c, and a service beside each"):
            check_server(places.slurm_conf, server)
    check_server(places.slurm_conf, "tcp:pod-a:8090,pod-b:8090")
    site = Site(pods=SITE.pods, socket="/tmp/slurm.sock", listen=doors, server="tcp:pod:8090")
    plan = native(places, site)
    hook = plan.texts[places.folder / "hook.conf"] or ""
    stack = plan.texts[places.etc / "plugstack.conf"] or ""
    for door in ("unix:/tmp/slurm.sock", *(f"tcp:{door}" for door in site.doors)):
        assert f"server {door}\n" in hook
        assert f" prove={door}" in stack
