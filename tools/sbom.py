"""What a release installs: a CycloneDX bill of materials, and the licences' own words."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.wheels import Pin, read_record, wheels_for

_TEXTS = re.compile(r"(^|/)(LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*$|\.dist-info/licenses/", re.I)
_SPACE = uuid.UUID("6f2a5a3e-5a0c-5a3b-9d0b-7d9a4c1f0e11")


class NotInstalled(Exception):
    """A locked package is not in this environment, or in another version."""


def installed(pins: Iterable[Pin]) -> list[tuple[Pin, Distribution]]:
    """The pins that apply to this Python, each with what is installed of it."""
    found = []
    for pin in pins:
        if pin.requirement.marker and not pin.requirement.marker.evaluate():
            continue
        here = distribution(pin.name)
        if here.version != pin.version:
            raise NotInstalled(f"{pin.name} is {here.version} here and {pin.version} in the lock")
        found.append((pin, here))
    return found


def sbom(version: str, pins: Sequence[Pin], when: int) -> str:
    """The bill of materials, as CycloneDX 1.6 in JSON. when: seconds since 1970.

    It holds for the Python that runs this, which its property `python` names. The hashes of a
    component are those of its wheels for this Python on all machines that a release is for, so a
    component with compiled code has several. The same input gives the same text.
    Raises NotInstalled.
    """
    own = Component(
        name="podwright",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"podwright=={version}",
        purl=PackageURL("pypi", name="podwright", version=version),
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    metadata = BomMetaData(
        component=own,
        timestamp=datetime.fromtimestamp(when, UTC),
        properties=[Property(name="python", value=python)],
    )
    pairs = installed(pins)
    files = read_record()
    components = {pin.name: _component(pin, here, wheels_for(pin, files)) for pin, here in pairs}
    name = " ".join(
        [version, python, *sorted(f"{c.name}=={c.version}" for c in components.values())]
    )
    bom = Bom(
        metadata=metadata, components=components.values(), serial_number=uuid.uuid5(_SPACE, name)
    )
    for pin, here in pairs:
        needs = {canonicalize_name(Requirement(text).name) for text in here.requires or ()}
        wanted = [components[name] for name in sorted(needs) if name in components]
        bom.register_dependency(components[pin.name], wanted)
    bom.register_dependency(own, components.values())
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def _component(pin: Pin, here: Distribution, hashes: Iterable[str]) -> Component:
    name = licence_name(here)
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{pin.name}=={pin.version}",
        purl=PackageURL("pypi", name=pin.name, version=pin.version),
        licenses=[LicenseFactory().make_from_string(name)] if name else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in hashes],
    )


def licence_name(here: Distribution) -> str:
    """How a distribution names its licence: an expression, else a classifier, else its words."""
    said = here.metadata
    if expression := said["License-Expression"]:
        return expression
    classified = [
        text.rpartition(" :: ")[2]
        for text in said.get_all("Classifier") or ()
        if text.startswith("License :: ") and not text.endswith(":: OSI Approved")
    ]
    if classified:
        return " or ".join(classified)
    words = (said["License"] or "").strip()
    return words.splitlines()[0] if words else ""


def licences(pins: Sequence[Pin]) -> str:
    """The licences of all that is installed: name, version, licence, and its files' text."""
    parts = []
    for pin, here in installed(pins):
        head = f"{pin.name} {pin.version}: {licence_name(here) or 'see its text'}"
        parts.append(f"{'=' * 78}\n{head}\n{'=' * 78}")
        for file in sorted(here.files or (), key=str):
            if _TEXTS.search(str(file)) and not str(file).endswith((".py", ".pyc")):
                text = Path(str(file.locate())).read_text(encoding="utf-8", errors="replace")
                parts.append(f"--- {file}\n\n{text.strip()}")
    return "\n\n".join(parts) + "\n"
