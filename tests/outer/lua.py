"""Runs a Lua file that we ship under a Lua that a Slurm may be linked against: 5.1 by Debian, 5.3
or 5.4 by most others. Slurm's tables are stood in for by what real Slurms were seen to hand over:
every number is a float (lua_pushnumber), what is not set is nil or NO_VAL.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS = ("lua5.1", "lua5.3", "lua5.4")
NO_VAL = float(0xFFFFFFFE)

_DRIVER = """
slurm = { SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294.0 }
local said = {}
-- As Slurm does it: what is handed over is formatted, one argument or several.
function slurm.log_user(...) said[#said + 1] = string.format(...) end
slurm.log_info, slurm.log_error, slurm.log_debug = slurm.log_user, slurm.log_user, slurm.log_user
assert(loadfile(arg[1]))()
local jobs = {
@JOBS@
}
local function shown(value)
   if type(value) == "number" then return string.format("%.14g", value) end
   if type(value) ~= "string" then return tostring(value) end
   return (string.gsub(value, "[%c\\\\]", "?"))
end
for _, job in ipairs(jobs) do
   said = {}
   local code = @CALL@
   io.write("code=", shown(code), "\\n")
   for _, text in ipairs(said) do io.write("said=", shown(text), "\\n") end
   for key, value in pairs(job.jd) do
      if type(value) ~= "table" then io.write("jd.", shown(key), "=", shown(value), "\\n") end
   end
   io.write("end\\n")
end
"""


@dataclass(frozen=True)
class Said:
    """What a script answered for one job: accepted or not, its words, the job as it left it."""

    accepted: bool
    words: str
    job: Mapping[str, str]


def lua(value: Any) -> str:
    """A value as Lua writes it; numbers as Slurm hands them over."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{float(value)!r}"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        # Slurm's own arrays begin at 0.
        return "{" + ", ".join(f"[{k}] = {lua(one)}" for k, one in enumerate(value)) + "}"
    return "{" + ", ".join(f"[{json.dumps(k)}] = {lua(one)}" for k, one in value.items()) + "}"


def run(version: str, script: Path, call: str, jobs: list[dict[str, Any]]) -> list[Said]:
    """Each job through `call`, a Lua expression of `job`, in one interpreter."""
    driver = script.parent / f"driver-{version}.lua"
    rows = "\n".join(f"   {lua(job)}," for job in jobs)
    driver.write_text(_DRIVER.replace("@JOBS@", rows).replace("@CALL@", call))
    done = subprocess.run(
        [version, driver, script], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    out, lines = [], []
    for line in done.stdout.splitlines():
        if line != "end":
            lines.append(line)
            continue
        pairs = [one.partition("=")[::2] for one in lines]
        words = " ".join(text for key, text in pairs if key == "said")
        job = {key[3:]: text for key, text in pairs if key.startswith("jd.")}
        out.append(Said(pairs[0][1] == "0", words, job))
        lines = []
    assert len(out) == len(jobs)
    return out
