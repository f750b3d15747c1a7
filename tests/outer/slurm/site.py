"""A site that had everything before we came: accounts, two pods, and scripts of its own at every
place where Slurm takes one. Native mode is added to it by the real command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.outer.lab import Accounts, LabError
from tests.outer.slurm.native import NativeLab

SUBMIT = """\
function slurm_job_submit(jd, parts, uid)
   if jd.name == "forbidden" then
      slurm.log_user("the site forbids this name")
      return slurm.ERROR
   end
   jd.comment = "seen by the site"
   return slurm.SUCCESS
end
function slurm_job_modify(jd, job, parts, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
_BUFFER = ["job_process", "pools", "setup", "data_in", "test_data_in", "real_size", "paths"]
_BUFFER += ["pre_run", "post_run", "data_out", "test_data_out", "job_teardown", "get_status"]
BUFFER = "".join(
    f"function slurm_bb_{name}(...)\n"
    + (
        f'   local f = io.open("@LAB@/seen/{name}-" .. select(1, ...), "w"); f:close()\n'
        if name in ("setup", "pre_run", "job_teardown")
        # A test can have it take its time.
        else '   os.execute("test ! -e @LAB@/seen/slow || sleep 4")\n'
        if name == "data_in"
        else ""
    )
    + "   return slurm.SUCCESS"
    + (", '{\"pools\":[]}'" if name == "pools" else ', ""' if name[:4] in ("test", "real") else "")
    + "\nend\n"
    for name in _BUFFER
)
#: A test can have it fail.
HOOK = """\
#!/bin/sh
: > "@LAB@/seen/{name}-$SLURM_JOB_ID"
test ! -e @LAB@/seen/{name}.bad || exit 3
"""
CLUSTER = """\
name = "{name}"
family = "ipu"
simulated = true
[[link_domains]]
machines = [{machines}]
"""


class SiteLab(Accounts, NativeLab):
    """pod64 (of which Slurm has an allocation that is closed to others) and pod16."""

    def __init__(self, **options: Any) -> None:
        conf = {
            **self.accounts_conf(),
            "JobSubmitPlugins": "lua",
            "PrologSlurmctld": "@LAB@/prolog.site",
            "EpilogSlurmctld": "@LAB@/epilog.site",
            "BurstBufferType": "burst_buffer/lua",
            "GresTypes": "nic",
            "Licenses": "matlab:2",
            "AccountingStorageEnforce": "limits",
            "AccountingStorageTRES": "license/matlab",
            "PropagateResourceLimitsExcept": "CORE",
            "PriorityType": "priority/multifactor",
            "PriorityWeightFairshare": "100000",
        }
        files = {
            "job_submit.lua": SUBMIT,
            "burst_buffer.lua": BUFFER,
            "burst_buffer.conf": "Directive=BB_lua\n",
            "prolog.site": HOOK.format(name="prolog"),
            "epilog.site": HOOK.format(name="epilog"),
            "plugstack.conf": "# of the site\noptional spank_pbs.so\n",
        }
        super().__init__(
            conf=conf,
            files=files,
            configure=["--pod", "pod64=podA/jobs", "--pod", "pod16=podB"],
            **options,
        )
        seen = self.folder / "seen"
        seen.mkdir()
        seen.chmod(0o1777)

    def before_us(self) -> dict[Path, bytes]:
        """The site's files as they are."""
        names = ["slurm.conf", "job_submit.lua", "plugstack.conf", "burst_buffer.lua"]
        return {self.folder / name: (self.folder / name).read_bytes() for name in names}

    def start_server(self) -> None:
        self.original = self.before_us()
        files = []
        for name, count in (("podA", 16), ("podB", 4)):
            machines = ", ".join(f'"{name}-{k}"' for k in range(count))
            path = self.write(f"{name}.toml", CLUSTER.format(name=name, machines=machines))
            files += ["--cluster-file", str(path)]
        self.serve(*files)
        self.admin("create", "user", "sched", "--role", "scheduler", "--uid", "daemon")
        self.admin(
            "create",
            "allocation",
            "jobs",
            "--cluster",
            "podA",
            "--size",
            "64",
            "--scheduler",
            "sched",
        )

    def admin(self, *words: str) -> None:
        said = self.command("vipu_admin", *words, user="root")
        if said.returncode:
            raise LabError(said.stderr)

    def seen(self, name: str, job: int) -> bool:
        """Did the site's own script run for the job?"""
        return (self.folder / "seen" / f"{name}-{job}").exists()
