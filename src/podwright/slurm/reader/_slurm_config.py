"""The configuration in force, as `scontrol show config` prints it."""

from __future__ import annotations

import re
from typing import Final

from podwright.errors import FieldNotKnown, InvalidRequest
from podwright.slurm.site.releases import NEWEST, Version, parse_version

_SETTING: Final = re.compile(r"^(\w+)(?:\[\d+\])?\s*=\s*(.*?)\s*$")
_NOTHING: Final = ("(null)", "(null type)", "N/A", "none", "None", "")
MIB: Final = 1 << 20


class SlurmConfig:
    """Slurm's settings by name. A setting that this Slurm does not show raises FieldNotKnown.

    text: the output of `scontrol show config`. Newer releases show some settings as a list
    (`PrologSlurmctld[0]`); such a setting has several values here.
    """

    __slots__ = ("_settings",)

    def __init__(self, text: str) -> None:
        self._settings: dict[str, list[str]] = {}
        for line in text.splitlines():
            if match := _SETTING.match(line):
                self._settings.setdefault(match[1].lower(), []).append(match[2])

    def text(self, name: str) -> str:
        """Return a setting as Slurm prints it. Raises FieldNotKnown."""
        values = self._settings.get(name.lower())
        if values is None:
            raise FieldNotKnown.of(name, "scontrol show config")
        return ",".join(values)

    def value(self, name: str) -> str:
        """Return a setting, or "" where nothing is set. Raises FieldNotKnown."""
        text = self.text(name)
        return "" if text in _NOTHING else text

    def names(self, name: str) -> list[str]:
        """Return a setting that is a list, in its order. Raises FieldNotKnown."""
        return [word.strip() for word in self.value(name).split(",") if word.strip()]

    def yes(self, name: str) -> bool:
        """Return whether a setting is yes. Raises FieldNotKnown."""
        return self.text(name).lower() in ("yes", "1", "true")

    def optional(self, name: str) -> str:
        """Return a setting that Slurm prints only where it is set, or "".

        Such are ConstrainDevices, and hooks since 25.05.
        """
        return self.value(name) if name.lower() in self._settings else ""

    @property
    def version(self) -> Version:
        """The release: (26, 5) for 26.05.5. Raises FieldNotKnown."""
        text = self.text("SLURM_VERSION")
        try:
            return parse_version(text)
        except InvalidRequest:
            raise FieldNotKnown.of(
                "SLURM_VERSION", "scontrol show config", f"{text[:40]!r} is not a version"
            ) from None

    @property
    def user_id(self) -> int:
        """The uid of SlurmUser, read from `slurm(64030)`. Raises FieldNotKnown."""
        text = self.text("SlurmUser")
        match = re.search(r"\((\d+)\)$", text)
        if not match:
            raise FieldNotKnown.of("SlurmUser", "scontrol show config", f"{text[:40]!r} has no uid")
        return int(match[1])

    @property
    def topology(self) -> str:
        """`tree`, `block` and so on, or `flat` where Slurm knows no network. Raises
        FieldNotKnown.
        """
        name = self.value("TopologyPlugin").rpartition("/")[2].lower()
        return "flat" if name in ("", "none", "default", "flat") else name

    @property
    def binds_tasks(self) -> bool:
        """Whether task/affinity binds tasks to cores. Raises FieldNotKnown."""
        return "affinity" in self.value("TaskPlugin")

    @property
    def memory(self) -> tuple[int, bool]:
        """DefMemPerCPU or DefMemPerNode: bytes (0: none), and whether they are for each CPU."""
        return self._sized("Def")

    @property
    def most_memory(self) -> tuple[int, bool]:
        """MaxMemPerCPU or MaxMemPerNode, in the same form. Raises FieldNotKnown."""
        return self._sized("Max")

    def _sized(self, bound: str) -> tuple[int, bool]:
        return sized(
            {
                f"{bound}Mem{each}": self.text(f"{bound}Mem{each}")
                for each in ("PerCPU", "PerNode")
                if f"{bound}mem{each}".lower() in self._settings
            },
            bound,
            FieldNotKnown.of(f"{bound}MemPerNode", "scontrol show config"),
        )

    @property
    def job_defaults(self) -> dict[str, int]:
        """JobDefaults: `DefCpuPerGPU` and `DefMemPerGPU` (MiB). Raises FieldNotKnown."""
        return job_defaults(self.value("JobDefaults"))

    @property
    def hides(self) -> frozenset[str]:
        """What PrivateData hides from users: `jobs`, `nodes`, … Raises FieldNotKnown."""
        return frozenset(word.lower() for word in self.names("PrivateData"))

    def hooks(self, name: str) -> list[str]:
        """Return the programs of a hook such as PrologSlurmctld, in their order."""
        return [
            program for program in self._settings.get(name.lower(), []) if program not in _NOTHING
        ]

    def __bool__(self) -> bool:
        return bool(self._settings)


def sized(fields: dict[str, str], bound: str, missing: FieldNotKnown) -> tuple[int, bool]:
    """Return DefMem… or MaxMem…: bytes (0: none), and whether they are for each CPU.

    Slurm prints one of two fields, by CPU or by node. missing: the error to raise where neither is
    there.
    """
    for key, per_cpu in ((f"{bound}MemPerCPU", True), (f"{bound}MemPerNode", False)):
        value = fields.get(key)
        if value is None:
            continue
        if value == "UNLIMITED":
            return 0, False
        if not (value.isascii() and value.isdigit()):
            raise FieldNotKnown.of(key, missing.record, f"{value[:40]!r} is not a number")
        return int(value) * MIB, per_cpu
    raise missing


def job_defaults(text: str) -> dict[str, int]:
    """Return `DefCpuPerGPU=4,DefMemPerGPU=1000` as numbers by name."""
    return {key: int(count) for key, count in re.findall(r"(\w+)=(\d+)", text)}


def release_note(version: Version | None) -> str:
    """Return the note beside every answer on a Slurm newer than the proven releases, or ""."""
    if version is None or version <= NEWEST:
        return ""
    newest = f"{NEWEST[0]}.{NEWEST[1]:02}"
    return (
        f"this Slurm is {version[0]}.{version[1]:02}, and {newest} is the newest release that this "
        "answer was proven with"
    )
