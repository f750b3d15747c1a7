"""`podwright node health`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from podwright.cli.podwright import main
from podwright.errors import InvalidRequest
from podwright.gpu.health import all_checks, read_settings
from podwright.gpu.health._node_health_state import forget, forgotten
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE
from tests.machines.node import HGX


@pytest.fixture(autouse=True)
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(HGX)
    monkeypatch.setenv(STANDIN_VARIABLE, str(path))
    return path


@pytest.fixture
def config(tmp_path: Path) -> str:
    """What depends on the machine that runs the tests is left out."""
    path = tmp_path / "health.toml"
    off = "".join(f'[checks.{name}]\nlevel = "off"\n' for name in ("adapters", "kernel"))
    path.write_text(off)
    return str(path)


def test_the_report_begins_with_the_outcome(
    described: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["node", "health", "--config", config]) == 0
    assert " is fit for jobs (5 checks, " in capsys.readouterr().out
    described.write_text(HGX + "[[gpu]]\nindex = 3\nrecovery = 'reset'\n")
    assert main(["node", "health", "--config", config]) == 1
    out = capsys.readouterr().out
    assert "is not fit for jobs" in out.splitlines()[0]
    assert "SICK  GPU 3 needs a reset   [recovery]" in out
    assert main(["node", "health", "--config", config, "--skip", "recovery"]) == 0


def test_json_of_a_sick_node_names_the_source(
    described: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    described.write_text(HGX + "[[gpu]]\nindex = 3\nrecovery = 'reset'\n")
    main(["node", "health", "--config", config, "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["fit"] is False
    assert said["judgement"]["says"] == "no"
    assert said["judgement"]["source"] == "the NVIDIA driver"
    assert said["judgement"]["left_out"][:2] == ["the check kernel", "the check adapters"]
    assert said["findings"][0] | {"because": "", "do": ""} == {
        "check": "recovery",
        "part": "GPU 3",
        "problem": "needs a reset",
        "because": "",
        "source": "the NVIDIA driver",
        "do": "",
        "says": "no",
    }


def test_a_node_that_is_not_known_ends_with_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for a user who may not read the kernel's log."""
    monkeypatch.setattr("podwright.gpu.health._kernel_facts.log_records", lambda root_folder: None)
    config = tmp_path / "health.toml"
    config.write_text('[checks.adapters]\nlevel = "off"\n')
    assert main(["node", "health", "--config", str(config)]) == 3
    out = capsys.readouterr().out
    assert "may or may not be fit for jobs" in out.splitlines()[0]
    assert "NOT KNOWN  the kernel's log cannot be read   [kernel]" in out
    assert "Not looked at: " in out


def test_a_sick_node_shows_in_the_file_for_prometheus(
    described: Path, config: str, tmp_path: Path
) -> None:
    described.write_text(HGX + "[[gpu]]\nindex = 3\nrecovery = 'reset'\n")
    file = tmp_path / "podwright.prom"
    assert main(["node", "health", "--config", config, "--prometheus", str(file)]) == 1
    families = {f.name: f for f in text_string_to_metric_families(file.read_text())}
    assert families["podwright_node_fit"].samples[0].value == 0
    findings = families["podwright_node_finding"].samples
    (sample,) = (each for each in findings if each.labels["says"] == "no")
    assert (sample.labels["part"], sample.labels["problem"]) == ("GPU 3", "needs a reset")
    assert [path.name for path in tmp_path.glob("*.prom*")] == ["podwright.prom"]


def test_the_list_names_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "health", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{name} " in out for name in all_checks())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[checks.kernal]\n", "there is no check kernal"),
        ("[checks.kernel]\nlevel = 'loud'\n", "Invalid enum value 'loud'"),
        ("cap = 0\n", "cap is 0"),
        ("act = 'kill'\n", "Invalid enum value 'kill'"),
        ("gpus = 8\n", "unknown field `gpus`"),
        ("[[scripts]]\nname = 's'\n", "unknown field `scripts`"),
        ("a =", "Invalid value"),
    ],
)
def test_settings_that_are_wrong_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "health.toml"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        read_settings(str(path), frozenset(all_checks()))


def test_a_mistyped_check_gets_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "health", "--skip", "kernal"]) != 0
    assert "did you mean 'kernel'?" in capsys.readouterr().err


def test_faults_of_another_boot_or_before_forget_do_not_count(tmp_path: Path) -> None:
    assert forgotten(tmp_path) == 0
    forget(tmp_path)
    assert 0 < forgotten(tmp_path) < 1e9
    (tmp_path / "forgotten").write_text("another-boot 5\n")
    assert forgotten(tmp_path) == 0


def test_health_imports_no_heavy_package(described: Path, config: str) -> None:
    """It runs on nodes every few minutes: without gRPC, MPI and numpy."""
    program = (
        "import sys; from podwright.cli.podwright import main; "
        f"main(['node', 'health', '--config', {config!r}]); "
        "print(*sorted({'grpc', 'mpi4py', 'numpy', 'uvloop', 'prometheus_client'}"
        " & set(sys.modules)), 'none')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "none", done.stderr
