"""The configuration in force, as `scontrol show config` prints it."""

from __future__ import annotations

import re
from typing import Final

from podwright.errors import FieldNotKnown, InvalidRequest
from podwright.slurm.site.releases import NEWEST_RELEASE, SlurmVersion, parse_version
from podwright.slurm.site.time_and_memory import MIB

_SETTING_PATTERN: Final = re.compile(r"^(\w+)(?:\[\d+\])?\s*=\s*(.*?)\s*$")
_EMPTY_VALUES: Final = ("(null)", "(null type)", "N/A", "none", "None", "")


class SlurmConfig:
    """Slurm's settings by name. A setting that this Slurm does not show raises FieldNotKnown.

    text: the output of `scontrol show config`. Newer releases show some settings as a list
    (`PrologSlurmctld[0]`); such a setting has several values here.
    """

    __slots__ = ("_settings",)

    def __init__(self, text: str) -> None:
        self._settings: dict[str, list[str]] = {}
        for line in text.splitlines():
            if setting_match := _SETTING_PATTERN.match(line):
                self._settings.setdefault(setting_match[1].lower(), []).append(setting_match[2])

    def text(self, name: str) -> str:
        """Return a setting as Slurm prints it. Raises FieldNotKnown."""
        values = self._settings.get(name.lower())
        if values is None:
            raise FieldNotKnown.of(name, "scontrol show config")
        return ",".join(values)

    def value(self, name: str) -> str:
        """Return a setting, or "" where nothing is set. Raises FieldNotKnown."""
        text = self.text(name)
        return "" if text in _EMPTY_VALUES else text

    def names(self, setting_name: str) -> list[str]:
        """Return a setting that is a list, in its order. Raises FieldNotKnown."""
        return [
            listed_name.strip()
            for listed_name in self.value(setting_name).split(",")
            if listed_name.strip()
        ]

    def yes(self, setting_name: str) -> bool:
        """Return whether a setting is yes. Raises FieldNotKnown."""
        return self.text(setting_name).lower() in ("yes", "1", "true")

    def optional(self, name: str) -> str:
        """Return a setting that Slurm prints only where it is set, or "".

        Such are ConstrainDevices, and hooks since 25.05.
        """
        return self.value(name) if name.lower() in self._settings else ""

    @property
    def version(self) -> SlurmVersion:
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
        uid_match = re.search(r"\((\d+)\)$", text)
        if not uid_match:
            raise FieldNotKnown.of("SlurmUser", "scontrol show config", f"{text[:40]!r} has no uid")
        return int(uid_match[1])

    @property
    def topology(self) -> str:
        """`tree`, `block` and so on, or `flat` where Slurm knows no network. Raises
        FieldNotKnown.
        """
        name = self.value("TopologyPlugin").rpartition("/")[2].lower()
        return "flat" if name in ("", "none", "default", "flat") else name

    @property
    def binds_tasks_to_cores(self) -> bool:
        """Whether task/affinity binds tasks to cores. Raises FieldNotKnown."""
        return "affinity" in self.value("TaskPlugin")

    @property
    def memory(self) -> tuple[int, bool]:
        """DefMemPerCPU or DefMemPerNode: bytes (0: none), and whether they are for each CPU."""
        return self._memory_limit("Def")

    @property
    def most_memory(self) -> tuple[int, bool]:
        """MaxMemPerCPU or MaxMemPerNode, in the same form. Raises FieldNotKnown."""
        return self._memory_limit("Max")

    def _memory_limit(self, def_or_max: str) -> tuple[int, bool]:
        return sized(
            {
                f"{def_or_max}Mem{unit}": self.text(f"{def_or_max}Mem{unit}")
                for unit in ("PerCPU", "PerNode")
                if f"{def_or_max}mem{unit}".lower() in self._settings
            },
            def_or_max,
            FieldNotKnown.of(f"{def_or_max}MemPerNode", "scontrol show config"),
        )

    @property
    def job_defaults(self) -> dict[str, int]:
        """JobDefaults: `DefCpuPerGPU` and `DefMemPerGPU` (MiB). Raises FieldNotKnown."""
        return job_defaults(self.value("JobDefaults"))

    @property
    def hides(self) -> frozenset[str]:
        """What PrivateData hides from users: `jobs`, `nodes`, … Raises FieldNotKnown."""
        return frozenset(kind.lower() for kind in self.names("PrivateData"))

    def hooks(self, hook_name: str) -> list[str]:
        """Return the programs of a hook such as PrologSlurmctld, in their order."""
        return [
            program
            for program in self._settings.get(hook_name.lower(), [])
            if program not in _EMPTY_VALUES
        ]

    def __bool__(self) -> bool:
        return bool(self._settings)


def sized(
    memory_fields: dict[str, str], def_or_max: str, missing_error: FieldNotKnown
) -> tuple[int, bool]:
    """Return DefMem… or MaxMem…: bytes (0: none), and whether they are for each CPU.

    Slurm prints one of two fields, by CPU or by node. missing_error: the error to raise where
    neither is there.
    """
    for field_name, per_cpu in (
        (f"{def_or_max}MemPerCPU", True),
        (f"{def_or_max}MemPerNode", False),
    ):
        mib_text = memory_fields.get(field_name)
        if mib_text is None:
            continue
        if mib_text == "UNLIMITED":
            return 0, False
        if not (mib_text.isascii() and mib_text.isdigit()):
            raise FieldNotKnown.of(
                field_name, missing_error.record, f"{mib_text[:40]!r} is not a number"
            )
        return int(mib_text) * MIB, per_cpu
    raise missing_error


def job_defaults(defaults_text: str) -> dict[str, int]:
    """Return `DefCpuPerGPU=4,DefMemPerGPU=1000` as numbers by name."""
    return {
        name: int(default_value)
        for name, default_value in re.findall(r"(\w+)=(\d+)", defaults_text)
    }


def release_note(slurm_version: SlurmVersion | None) -> str:
    """Return the note beside every answer on a Slurm newer than the proven releases, or ""."""
    if slurm_version is None or slurm_version <= NEWEST_RELEASE:
        return ""
    proven = f"{NEWEST_RELEASE[0]}.{NEWEST_RELEASE[1]:02}"
    return (
        f"this Slurm is {slurm_version[0]}.{slurm_version[1]:02}, and {proven} is the "
        "newest release that this "
        "answer was proven with"
    )
