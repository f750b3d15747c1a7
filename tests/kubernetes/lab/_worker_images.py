"""Images for jobs with a launcher: Podwright's own, and one with a Python of its own that trains.

Both stand on busybox, and neither shares a file with the other.
"""

import importlib.util
import shutil
from pathlib import Path

from podwright.kubernetes import write_worker_files

from ._binaries import Binaries
from ._images import busybox_layer, folder_layer, write_image

#: What init containers run.
PODWRIGHT_IMAGE = "localhost/podwright:lab"
#: Python, NumPy, popdist, and examples/train_digits.py with its images of digits.
DIGITS_IMAGE = "localhost/digits:lab"
_EXAMPLE = Path(__file__).parents[3] / "examples" / "train_digits.py"
_PYTHON = "/opt/python"


def worker_images(files: Binaries, folder: Path) -> list[Path]:
    """Their archives. folder: a new one."""
    base, ours, theirs = busybox_layer(files), folder / "ours", folder / "theirs"
    write_worker_files(ours)
    write_worker_files(theirs, _PYTHON)
    _add_digits(theirs)
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
    return made


def _add_digits(folder: Path) -> None:
    """Nothing of Podwright's is left in it but popdist, which programs import."""
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
