"""Another package adds one thing of each kind, and each is used from where it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright.errors import Unavailable
from podwright.fabric import family_named
from podwright.ground import plugins
from tests.whole.conftest import Pod
from tests.whole.conftest import make_pod as make_pod

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
ACME = (sys.executable, "-c", "import os; print('ACME is', os.environ['ACME'])")
RINGS = """
name = "rings"
family = "acme-ring"

[[link_domains]]
name = "d0"
machines = ["r1", "r2"]
"""
SITE = """
[[nodes]]
names = "gpu[1-4]"
sockets = 2
cores_per_socket = 8
gpus = { type = "h100", count = 8, memory = 80 }
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example was installed into, as pip does it."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(PLUGIN, folder / "source")
    hatch = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(hatch, cwd=source, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--disable-pip-version-check", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(pip, check=True, timeout=300)
    return folder / "site"


def run(installed: Path, *words: str, code: int = 0, text: str = "") -> str:
    """What a command says where the package is installed."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(installed)},
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_rule_is_listed_and_finds(installed: Path) -> None:
    lint = ("-m", "podwright.cli.podwright", "slurm", "lint")
    assert "acme-mail" in run(installed, *lint, "--rules")
    script = "#!/bin/bash\n#SBATCH --mail-user=me@home.example\nsrun ./a\n"
    assert ": acme-mail: " in run(installed, *lint, "-", text=script, code=1)
    script = script.replace("home", "acme")
    assert "acme-mail" not in run(installed, *lint, "-", text=script)


def test_a_family_places_by_its_own_rule(installed: Path, tmp_path: Path) -> None:
    file = tmp_path / "rings.toml"
    file.write_text(RINGS)
    program = (
        "import sys\n"
        "from podwright.fabric import load_cluster\n"
        "from podwright.placement import Refusal, Request, index_of\n"
        "index = index_of(load_cluster(sys.argv[1]))\n"
        "print(index.allocate(Request(4)).blocks)\n"
        "refused = index.plan(Request(2))\n"
        "assert isinstance(refused, Refusal) and refused.never\n"
        "print(refused.rule, refused.nearest_sizes)\n"
        "print(index.allocate(Request(4)).blocks, index.free())\n"
    )
    said = run(installed, "-c", program, str(file)).splitlines()
    assert said[1] == "rings are given out whole, 4 devices each (4,)"
    assert said[0] != said[2].rpartition(" ")[0]
    assert said[2].endswith(" 0")


def test_a_driver_is_served_and_a_guard_is_set_up(installed: Path) -> None:
    program = (
        "import asyncio\n"
        "from podwright.cli import vipu_agent\n"
        "from podwright.agents.command._machine_from_options import added_machine, make_guards\n"
        "parse = vipu_agent.parse\n"
        "machine = added_machine(parse(['--driver', 'acme', '--machine', 'm1']))\n"
        "report = asyncio.run(machine.describe())\n"
        "print(report.name, report.family, len(report.devices), report.devices[0].chip_id)\n"
        "(guard,) = make_guards(parse(['--gpus', '--guard', 'acme-lock']), [])\n"
        "print(type(guard).__name__)\n"
    )
    driven, guard = run(installed, "-c", program).splitlines()
    assert driven.startswith("m1 acme-ring 4 ACME")
    assert guard == "Lock"


def test_a_fabric_is_driven_by_its_name(installed: Path) -> None:
    program = (
        "import asyncio\n"
        "from acme_pods.fabric import SWITCH\n"
        "from podwright.agents import FabricSite, MemoryFabricJournal\n"
        "from podwright.cli import vipu_server\n"
        "from podwright.server.machines._choose_fabric_driver import fabric_driver\n"
        "from podwright.server.command._serving_from_options import fabric_options\n"
        "arguments = vipu_server.parse(['--fabric', 'acme'])\n"
        "options = fabric_options(arguments)\n"
        "driver = fabric_driver(options)(FabricSite(MemoryFabricJournal(), lambda _: ()))\n"
        "asyncio.run(driver.join('p1', 1, {'r1': [0], 'r2': [3]}))\n"
        "print(driver.kind, {name: len(ports) for name, ports in SWITCH.groups.items()})\n"
    )
    assert run(installed, "-c", program) == "Acme {'podwright-p1': 2}\n"


def test_its_driver_of_a_fabric_survives_the_fault_kit(installed: Path) -> None:
    told = run(installed, str(PLUGIN / "check_fabric.py"), "12")
    assert re.fullmatch(r"12 lives, \d{2,} faults, \d+ kills: the contract holds\n", told), told


def test_a_switch_that_forwards_beyond_a_partition_is_caught(installed: Path) -> None:
    program = (
        "import asyncio, sys\n"
        f"sys.path.insert(0, {str(PLUGIN)!r})\n"
        "import check_fabric\n"
        "from podwright.testing import ContractBroken\n"
        "check_fabric.AcmeRig.reaches = lambda rig, device, peer: device.machine == peer.machine\n"
        "try:\n"
        "    asyncio.run(check_fabric.main(12))\n"
        "except ContractBroken as error:\n"
        "    print('reach' in str(error))\n"
    )
    assert run(installed, "-c", program) == "True\n"


def test_a_store_is_opened_by_its_scheme(installed: Path) -> None:
    program = (
        "import asyncio\n"
        "from podwright.store import Put, open_store\n"
        "store = open_store('acme://here')\n"
        "async def main():\n"
        "    await store.open()\n"
        "    await store.commit([Put('a', 'b', b'c')])\n"
        "    print(sorted((await store.read()).records))\n"
        "asyncio.run(main())\n"
    )
    assert run(installed, "-c", program) == "[('a', 'b')]\n"


def test_a_server_serves_its_rings_from_its_store(
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_pod: Callable[..., Pod],
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    file = tmp_path / "rings.toml"
    file.write_text(f"simulated = true\n{RINGS}")
    pod = make_pod("--cluster-file", str(file), "--storage", "acme://here")

    pod.good("vipu", "create", "partition", "p1", "--size", "4")

    refused = pod.run("vipu", "create", "partition", "p2", "--size", "2")
    assert "rings are given out whole, 4 devices each" in refused.err
    assert set(pod.partitions()) == {"p1"}
    poprun = ("poprun", "--launcher=acme", "--vipu-partition=p1", "--ipus-per-replica=4")
    assert "ACME is yes" in pod.good(*poprun, "--num-replicas=1", *ACME)
    assert not pod.storage.exists()
    pod.good("vipu-server", "--storage", "acme://here", "--backup", tmp_path / "backup")
    assert pod.stop() == 0


def test_what_is_refused_names_what_was_added(installed: Path) -> None:
    server = ("-m", "podwright.cli.vipu_server", "--storage", "nosuch://x")
    assert "postgresql://user@host/database, or acme://" in run(installed, *server, code=2)
    poprun = ("-m", "podwright.cli.poprun", "--launcher", "nosuch", "true")
    assert "auto, mpirun, srun, local or acme" in run(installed, *poprun, code=2)


def test_a_launcher_starts_a_program(installed: Path) -> None:
    words = ["--launcher", "acme", "--offline-mode", "yes", "--num-replicas", "1"]
    said = run(installed, "-m", "podwright.cli.poprun", *words, *ACME)
    assert "Acme's launcher starts them" in said
    assert "ACME is yes" in said


def test_a_health_check_is_in_the_table_and_finds(installed: Path) -> None:
    health = ("-m", "podwright.cli.podwright", "node", "health")
    assert "acme-label" in run(installed, *health, "--list")
    program = (
        "from types import SimpleNamespace as Like\n"
        "from podwright.gpu.health import CheckContext, all_checks\n"
        "seen = Like(inventory=Like(host='n1'))\n"
        "context = CheckContext(seen, None)\n"
        "print(*(wrong.problem for wrong in all_checks()['acme-label'].find(context)))\n"
    )
    assert run(installed, "-c", program) == "is called n1\n"


def test_a_template_is_rendered(installed: Path, tmp_path: Path) -> None:
    template = ("-m", "podwright.cli.podwright", "slurm", "template")
    assert "say hello from each node" in run(installed, *template, "--list")
    site = tmp_path / "site.toml"
    site.write_text(SITE)
    script = run(installed, *template, "acme-hello", "--nodes", "2", "--inventory", str(site))
    assert "#SBATCH --nodes=2" in script
    assert "#SBATCH --gpus-per-node=8" in script


def test_slurm_is_told_the_familys_own_sizes(installed: Path) -> None:
    """4, 8, 12 ...: of these Slurm counts the powers of two, and host mapping takes all."""
    program = (
        "from pathlib import Path\n"
        "from podwright.client import Client, FakeTransport\n"
        "from podwright.guests.slurm.service import Site\n"
        "from podwright.guests.slurm.setup._plan_site_changes import job_submit\n"
        "from podwright.guests.slurm.setup._pod_survey import mapping, survey\n"
        "from podwright.wire import *\n"
        "def answer(method, request):\n"
        "    if method == 'ListClusters':\n"
        "        return ClusterList(clusters=[ClusterInfo(name='rings', family='acme-ring',\n"
        "            size=32, free=32, machines=['r1'], ild_sizes=[32])])\n"
        "    refs = [DeviceRef(domain=0, offset=at, machine='r1') for at in range(32)]\n"
        "    return DeviceList(devices=[DeviceInfo(cluster='rings', device=r) for r in refs])\n"
        "client = Client(FakeTransport(answer))\n"
        "native = Site(pods=survey(client, []))\n"
        "hosts = Site(mode='host-mapping', hosts=mapping(client, 'n1:r1', 'file'))\n"
        "for site in (native, hosts):\n"
        "    lua = job_submit(site, Path('/etc/slurm'), (0,), cluster='lab')\n"
        "    print([line.strip() for line in lua.splitlines() if '4, 8' in line])\n"
        "print(native.totals())\n"
    )
    pods, mapped, totals = run(installed, "-c", program).splitlines()
    assert "sizes = { 4, 8, 16, 32 }" in pods
    assert "{ 4, 8, 12, 16, 20, 24, 28, 32, whole = 32 }" in mapped
    assert "'ipu_x4': 32" in totals
    assert "ipu_x2" not in totals


def test_without_it_nothing_is_added() -> None:
    assert family_named("acme-ring") is None
    assert plugins.names(plugins.LINT_RULES) == ()


def test_a_broken_one_is_named(installed: Path) -> None:
    """Its error says which package is at fault, and what to do."""
    program = (
        "from podwright.ground import plugins\n"
        "from podwright.errors import Unavailable\n"
        "try:\n    plugins.load(plugins.FAMILIES, 'acme-ring', int)\n"
        "except Unavailable as error:\n    print(error.message)\n"
    )
    said = run(installed, "-c", program)
    assert "RING of acme-pods cannot be used: it is a Family, and not a int" in said
    assert "pip uninstall acme-pods" in said
    assert issubclass(Unavailable, Exception)
