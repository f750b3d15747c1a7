"""A site's Slurm that has all kinds of scripts of its own, as `configure` finds it."""

from __future__ import annotations

from pathlib import Path

from podwright.guests.slurm.setup import NativePlaces


def make_site(folder: Path) -> NativePlaces:
    """Its files, in a folder."""
    etc = folder / "etc"
    etc.mkdir()
    (etc / "slurm.conf").write_bytes(
        b"ClusterName=x\nLicenses=matlab:4\nJobSubmitPlugins=lua\nPrologSlurmctld=/site/p\n"
        b"EpilogSlurmctld=/site/e\nBurstBufferType=burst_buffer/lua\nCliFilterPlugins=lua\n"
        b"AccountingStorageType=accounting_storage/slurmdbd\n# \xe9nd"
    )
    (etc / "job_submit.lua").write_text("function slurm_job_submit() end\n")
    (etc / "cli_filter.lua").write_text("function slurm_cli_pre_submit() end\n")
    (etc / "plugstack.conf").write_text("required site.so\n")
    (etc / "burst_buffer.lua").write_text("-- ours\n")
    return NativePlaces(etc / "slurm.conf", folder / "podwright", folder / "native")


def everything(root: Path) -> dict[str, bytes]:
    """All files below a folder, with what is in them."""
    return {
        str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()
    }
