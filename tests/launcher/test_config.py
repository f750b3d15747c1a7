"""Command lines in files: round trips, precedence, and files that are broken or hostile."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.cli.poprun import main
from podwright.errors import InvalidRequest
from podwright.launcher import Options, parse
from podwright.launcher.options._config import config_text, write_config

GUIDE = (
    "--vipu-partition=my_partition --vipu-allocation=allocation1 "
    "--vipu-server-host=vipu.my_domain --vipu-server-port=34521 --update-partition=yes "
    "--remove-partition=no --num-replicas=32 --num-instances=2 --num-ilds=2"
)
FULL = (
    "-vv --mpi-global-args=--tag-output --mpi-global-args='--mca a b' "
    "--instance-mpi-local-args='1:-x A=1' --executable-cache-path='' --vipu-server-timeout=1.5 "
    "--sync-type=ST_POD_NATIVE_DEFAULT --reset-partition=no --numa-aware=no --grace=0"
)


@pytest.mark.parametrize("line", ["", GUIDE, FULL])
def test_options_that_were_written_are_read_again(tmp_path: Path, line: str) -> None:
    path = str(tmp_path / "training.conf")
    options = parse([*shlex.split(line), "--export-config", path, "python3", "t.py", "--a", "b c"])
    assert write_config(options, path, overwrite=False) == path
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    again = parse(["--import-config", path])
    assert again == Options(**{**vars(options), "export_config": None, "import_config": path})


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_any_text_survives(words: list[str]) -> None:
    import tomllib

    options = parse(["t", *words])
    assert tomllib.loads(config_text(options))["program"] == ["t", *words]


def test_typed_options_override_those_of_the_file(tmp_path: Path) -> None:
    """PopRun guide 2.9: 4 instances, and the program with its new argument."""
    path = str(tmp_path / "training.conf")
    options = parse([*GUIDE.split(), "--mpi-local-args=-x A", "python3", "train.py"])
    write_config(options, path, overwrite=False)
    before = Path(path).read_bytes()
    typed = ["--num-instances=4", "--mpi-local-args=-x B", "python3", "train.py", "--x=1"]
    again = parse(["--import-config", path, *typed])
    other = {
        "num_instances": 4,
        "mpi_local_args": ("-x B",),
        "program": ("python3", "train.py", "--x=1"),
        "import_config": path,
    }
    assert again == Options(**{**vars(options), **other})
    assert Path(path).read_bytes() == before


def test_a_file_that_exists_is_kept_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_text("mine")
    options = parse(["t"])
    other = Path(write_config(options, str(path), overwrite=False, wall_time=0.0))
    assert other.name.startswith("c.19")
    assert path.read_text() == "mine"
    assert write_config(options, str(path), overwrite=True) == str(path)
    assert path.read_text() == other.read_text()
    assert sorted(tmp_path.iterdir()) == sorted([path, other])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("program = ", "Invalid value"),
        ("\xff", "codec can't decode"),
        ("a = " + "[" * 100000, "maximum recursion depth|RecursionError"),
        ("program = 'train.py'", "program is not an array of strings"),
        ('program = ["a\\u0000b"]', "program is not an array of strings"),
        ("other = 1", "it holds 'other' beside program"),
        ("options = 3", "it holds 'options' beside"),
        ("[options]\nnum-replics = 3", "there is no option 'num-replics'"),
        ("[options]\nimport-config = 'x'", "there is no option 'import-config'"),
        ("[options]\nnum-replicas = 'many'", "num-replicas takes a whole number above 0"),
        ("[options]\nnum-replicas = [1, 2]", "num-replicas has a value that no option takes"),
        ("[options]\nnum-replicas = {a = 1}", "num-replicas has a value that no option takes"),
        ("[options]\nvipu-partition = 1979-05-27", "has a value that no option takes"),
        ("#" * (1 << 20) + "\n", "too large"),
    ],
)
def test_broken_files_get_one_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "c"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidRequest, match=why) as caught:
        parse(["--import-config", str(path), "t"])
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message
    assert len(caught.value.message) < 500


def test_only_an_ordinary_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("none", "fifo", "."):
        with pytest.raises(InvalidRequest, match="--import-config"):
            parse([f"--import-config={tmp_path / name}", "t"])
    with pytest.raises(InvalidRequest, match="No such file"):
        write_config(parse(["t"]), str(tmp_path / "no" / "c"), overwrite=True)
    with pytest.raises(InvalidRequest, match="are not text in UTF-8"):
        config_text(parse(["t", "\udcff"]))


def test_import_and_export_at_once_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c").touch()
    words = [f"--import-config={tmp_path}/c", f"--export-config={tmp_path}/d", "t"]
    with pytest.raises(InvalidRequest, match="cannot be used at the same time"):
        parse(words)


def test_the_command_writes_it_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c"
    line = [*GUIDE.split(), "--export-config", str(path), "python3", "train.py"]
    for _ in range(2):
        assert main(["--dry-run", *line]) == 0
    told = capsys.readouterr()
    assert told.out.count("program:         python3 train.py\n") == 2
    assert f"POPRUN WARNING: the options are in {path}." in told.err
    assert main(["--dry-run", "--import-config", str(path)]) == 0
    assert capsys.readouterr().out * 2 == told.out
    assert main(["--dry-run", "--num-replicas=3", "--num-instances=2", *line[-4:]]) == 2
    assert len(list(tmp_path.iterdir())) == 2, "what cannot run is not stored"
