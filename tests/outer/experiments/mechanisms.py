"""The candidates: for each, the pieces of slurm.conf, the scripts and the stand-in's options."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.outer.lab import Release, SlurmLab, poll

NATIVE = Path(__file__).parents[3] / "src/podwright/guests/slurm/native"
DEVICES = 256
ORDERS = DEVICES.bit_length()
#: Whose Slurm; set once by the command line.
RELEASE = Release("oldest", None)

_SUBMIT = """\
local function asked(jd)
   for _, entry in pairs(jd.spank_job_env or {}) do
      local n = string.match(entry, "^IPUS=(%d+)$") or string.match(entry, "^SPANK_IPUS=(%d+)$")
      if n then return tonumber(n) end
   end
end
function slurm_job_submit(jd, parts, uid)
   local n = asked(jd)
   if n == nil then return slurm.SUCCESS end
   if n > @DEVICES@ then
      slurm.log_user("--ipus=%d: this pod has @DEVICES@", n)
      return slurm.ERROR
   end
   @BODY@
   return slurm.SUCCESS
end
function slurm_job_modify(jd, jr, parts, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""

_COUNT = 'jd.licenses = "ipu:" .. n'
_BLOCKS = """if jd.het_job_offset ~= nil and jd.het_job_offset < 1000 then
      jd.admin_comment = "ipus=" .. n
      if jd.het_job_offset == 0 then jd.licenses = "ipu_het_wait:1" end
      return slurm.SUCCESS
   end
   local all, k = "ipu:" .. n .. ",ipu_x1:" .. n, 2
   while k <= n do all = all .. ",ipu_x" .. k .. ":" .. n; k = k * 2 end
   jd.licenses = all"""

_GATE = """\
local function hook(what, job, script)
   local file = io.open("@LAB@/bb/" .. job)
   local n = file and file:read("*l") or "0"
   if file then file:close() end
   local code = os.execute("SLURM_JOB_ID=" .. job .. " SLURM_JOB_LICENSES=ipu:" .. n ..
      " @LAB@/etc/" .. what)
   if code == 0 or code == true then return slurm.SUCCESS end
   return slurm.ERROR, "no devices of that shape"
end
local function asked(job_script)
   local file = io.open(job_script)
   local n = file and string.match(file:read("*a"), "#IPU devices=(%d+)") or "0"
   if file then file:close() end
   return n
end
function slurm_bb_job_process(script) return slurm.SUCCESS end
function slurm_bb_pools() return slurm.SUCCESS, '{"pools":[]}' end
function slurm_bb_setup(job, uid, gid, pool, size, script)
   local file = io.open("@LAB@/bb/" .. job, "w")
   file:write(asked(script) .. "\\n"); file:close()
   return slurm.SUCCESS
end
function slurm_bb_data_in(job, script) return slurm.SUCCESS end
function slurm_bb_test_data_in(job) return slurm.SUCCESS, "" end
function slurm_bb_real_size(job) return slurm.SUCCESS, "" end
function slurm_bb_paths(job, script, file) return slurm.SUCCESS end
function slurm_bb_pre_run(job, script) return hook("prolog-slurmctld", job, script) end
function slurm_bb_post_run(job, script) return slurm.SUCCESS end
function slurm_bb_data_out(job, script) return slurm.SUCCESS end
function slurm_bb_test_data_out(job) return slurm.SUCCESS, "" end
function slurm_bb_job_teardown(job, script, hurry) return hook("epilog-slurmctld", job, script) end
function slurm_bb_get_status(uid, gid) return slurm.SUCCESS, "" end
return slurm.SUCCESS
"""

_GATE_CONF = "Directive=IPU\nStageInTimeout=60\nStageOutTimeout=60\nOtherTimeout=60\n"
_HOOKS = {
    "PrologSlurmctld": "@LAB@/etc/prolog-slurmctld",
    "EpilogSlurmctld": "@LAB@/etc/epilog-slurmctld",
}
_TRUE = {"PrologSlurmctld": "/bin/true", "EpilogSlurmctld": "/bin/true"}


@dataclass(frozen=True)
class Mechanism:
    name: str
    title: str
    submit: str = ""
    conf: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    counts: bool = True
    sync: bool = False


_LOTS = "bb_array_stage_cnt=100"
MECHANISMS = {
    one.name: one
    for one in (
        Mechanism("plain", "plain Slurm, no devices", counts=False),
        Mechanism("empty", "licences, hooks that do nothing", _COUNT, _TRUE),
        Mechanism("count", "licences, allocation in PrologSlurmctld", _COUNT, _HOOKS),
        Mechanism(
            "gate",
            "licences, pool-less burst buffer",
            _COUNT + '\n   jd.burst_buffer = "#IPU devices=" .. n',
            {"BurstBufferType": "burst_buffer/lua"},
            {"burst_buffer.lua": _GATE, "burst_buffer.conf": _GATE_CONF},
        ),
        Mechanism("blocks", "block licences, PrologSlurmctld", _BLOCKS, _HOOKS, sync=True),
    )
}
SCHEDULER = (
    "batch_sched_delay=0,sched_min_interval=0,sched_interval=5,bf_interval=1,"
    "default_queue_depth=10000,bf_max_job_test=10000,nohold_on_prolog_fail," + _LOTS
)


@dataclass
class Cluster:
    lab: SlurmLab
    journal_path: Path

    def journal(self, event: str = "") -> list[dict[str, Any]]:
        if not self.journal_path.exists():
            return []
        lines = map(json.loads, self.journal_path.read_text().splitlines())
        return [line for line in lines if event in ("", line["event"])]

    def held(self) -> int:
        """Devices held by jobs now, by the stand-in's book."""
        journal = self.journal()
        return int(journal[-1]["held"]) if journal else 0


@contextmanager
def cluster(
    mechanism: Mechanism, *, nodes: int = 4, cpus: int = 32, patience: float = 5.0
) -> Iterator[Cluster]:
    """A started lab with the mechanism in place and its stand-in running."""
    conf = {"SchedulerParameters": SCHEDULER, **mechanism.conf}
    files = dict(mechanism.files)
    if mechanism.counts:
        names = ["ipu", *(f"ipu_x{1 << k}" for k in range(ORDERS))]
        counts = ",".join(f"{one}:{DEVICES}" for one in names)
        conf["Licenses"] = counts + ",ipu_het_wait:1"
    if mechanism.submit:
        conf["JobSubmitPlugins"] = "lua"
        script = _SUBMIT.replace("@DEVICES@", str(DEVICES))
        files["job_submit.lua"] = script.replace("@BODY@", mechanism.submit)
    lab = SlurmLab(nodes=nodes, cpus=cpus, conf=conf, files=files, release=RELEASE)
    etc = lab.folder / "etc"
    etc.mkdir()
    (lab.folder / "bb").mkdir()
    headers = [f"SLURM_INCLUDE={RELEASE.headers}"] if RELEASE.headers else []
    subprocess.run(["make", "-s", "-C", NATIVE, f"OUT={etc}", *headers], check=True)
    for name in ("prolog-slurmctld", "epilog-slurmctld"):
        (etc / name).symlink_to("podwright-hook")
    lab.write("etc/hook.conf", "server unix:@LAB@/standin.sock\nprolog-seconds 60\n")
    lab.write("plugstack.conf", "required @LAB@/etc/spank_podwright.so\n")
    journal = lab.folder / "journal"
    stand_in = None
    try:
        argv = [sys.executable, "-m", "tests.outer.experiments.standin"]
        argv += ["--socket", f"{lab.folder}/standin.sock", "--journal", str(journal)]
        argv += ["--prefix", " ".join(lab.prefix())]
        argv += ["--patience", str(patience), *(["--sync"] if mechanism.sync else [])]
        stand_in = subprocess.Popen(argv, env=lab.environment(), cwd=Path(__file__).parents[3])
        poll("the stand-in", (lab.folder / "standin.sock").exists)
        lab.start()
        if mechanism.sync:
            hidden = ",".join(f"{one}:0" for one in names) + ",ipu_het_wait:1"
            options = ["flags=LICENSE_ONLY", "starttime=now", "duration=UNLIMITED", "users=root"]
            lab.ok(
                *["scontrol", "create", "reservation", "reservationname=podwright", *options],
                f"licenses={hidden}",
            )
        yield Cluster(lab, journal)
    finally:
        lab.stop()
        if stand_in:
            stand_in.wait()
