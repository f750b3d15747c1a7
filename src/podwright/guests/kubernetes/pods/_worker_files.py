"""The files that an init container copies into the pods of jobs: launcher and relay, with their own
Python.

The running interpreter is copied with its standard library, with the libraries that it is linked
to, and with the loader of these. So it runs in an image of any Linux, with an older libc or with
none. `bin` has the commands for pods, which need a shell. Other programs do not find these files:
no variable points to them, and this Python reads no variables.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

from podwright.errors import Unavailable
from podwright.guests.kubernetes.pods._write_folder import filled

#: Where these files are, in our image and in pods. The scripts contain this path.
PLACE: Final = "/podwright"
#: Gives a launcher's init container the text for the file MPI_HOSTS, beside these files.
MPI_HOSTS_VARIABLE: Final = "PODWRIGHT_MPI_HOSTS"
MPI_HOSTS: Final = "hosts"
#: Parts of the standard library that nothing uses in a pod.
_EXCLUDED_FILES: Final = (
    "__pycache__",
    "site-packages",
    "dist-packages",
    "config-*",
    "*.pyc",
    "test",
)
_EXCLUDED_MODULES: Final = ("idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "distutils")
#: Extension modules that need many libraries and that nothing uses here.
_EXCLUDED_EXTENSIONS: Final = (
    "_tkinter*",
    "readline*",
    "_curses*",
    "_sqlite3*",
    "_gdbm*",
    "_dbm*",
    "nis*",
)
#: The packages beside our own that launcher and relay use.
_COPIED_PACKAGES: Final = (
    "ClusterShell",
    "google.protobuf",
    "grpc",
    "msgspec",
    "typing_extensions",
)
_MODULE_BY_COMMAND: Final = {
    "poprun": "podwright.cli.poprun",
    "prepare": "podwright.guests.kubernetes.pods._pod_preparation",
    "worker": "podwright.guests.kubernetes.workers._worker_door",
}
_PYTHON_SCRIPT: Final = """\
#!/bin/sh
at={place}
exec $at/lib/{loader} --inhibit-cache --library-path $at/lib --argv0 $at/libexec/python \\
    $at/libexec/python.real -E -s -S "$@"
"""
_COMMAND: Final = '#!/bin/sh\nexec {place}/libexec/python -P -m {module} "$@"\n'
#: Settings for mpirun of Open MPI 4 and 5: it finds the workers in our list of hosts, and reaches
#: them as poprun does. A user's own settings override these.
_MPI_SETTINGS: Final = {
    "OMPI_MCA_orte_default_hostfile": "{place}/hosts",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
    "OMPI_MCA_plm_rsh_agent": "{place}/bin/mpi-agent",
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    "PRTE_MCA_prte_default_hostfile": "{place}/hosts",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
    "PRTE_MCA_plm_ssh_agent": "{place}/bin/mpi-agent",
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
}
#: Runs a launcher's own command with these settings, and with our poprun first on PATH.
_LAUNCHER_SCRIPT: Final = (
    "#!/bin/sh\n"
    + "".join(
        f'export {name}="${{{{{name}:-{value}}}}}"\n' for name, value in _MPI_SETTINGS.items()
    )
    + 'PATH={place}/bin:$PATH exec "$@"\n'
)
#: What Open MPI calls in place of ssh, with a host and a command for a shell there.
_MPI_AGENT_SCRIPT: Final = (
    "#!/bin/sh\nexec {place}/libexec/python -P -m "
    'podwright.guests.kubernetes.workers._worker_call --mpi "$@"\n'
)
_LDD_LINE_PATTERN: Final = re.compile(r"(?m)^\s*(\S+) => (/\S+) \(0x|^\s*(/\S+) \(0x")


def write_worker_files(folder: Path, install_path: str = PLACE) -> None:
    """Write the files into an empty or missing folder, for use at `install_path`.

    Raises AlreadyExists for a folder that is not empty, and Unavailable where the files cannot be
    written; what was written of them is removed then.
    """
    with filled(folder):
        _write_all(folder, install_path)


def _write_all(folder: Path, install_path: str) -> None:
    for name in ("bin", "lib", "libexec"):
        (folder / name).mkdir(parents=True)
    interpreter = Path(os.path.realpath(sys.executable))
    shutil.copy2(interpreter, folder / "libexec" / "python.real")
    stdlib_folder = folder / "lib" / Path(sysconfig.get_path("stdlib")).name
    _copy_library(stdlib_folder)
    libraries = _linked_libraries([interpreter, *stdlib_folder.rglob("*.so")])
    for library_path in libraries:
        shutil.copy2(library_path, folder / "lib" / library_path.name)
    compileall.compile_dir(
        stdlib_folder,
        quiet=2,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        stripdir=str(folder),
        prependdir=install_path,
    )
    loader_name = next(
        library_path.name for library_path in libraries if library_path.name.startswith("ld-")
    )
    _write_script(
        folder / "libexec" / "python", _PYTHON_SCRIPT.format(place=install_path, loader=loader_name)
    )
    for name, module_name in _MODULE_BY_COMMAND.items():
        _write_script(
            folder / "bin" / name, _COMMAND.format(place=install_path, module=module_name)
        )
    _write_script(folder / "bin" / "launcher", _LAUNCHER_SCRIPT.format(place=install_path))
    _write_script(folder / "bin" / "mpi-agent", _MPI_AGENT_SCRIPT.format(place=install_path))


def _copy_library(stdlib_folder: Path) -> None:
    """Copy the standard library, and packages into it, because the interpreter looks nowhere else
    (-S).
    """
    ignore_filter = shutil.ignore_patterns(
        *_EXCLUDED_FILES, *_EXCLUDED_MODULES, *_EXCLUDED_EXTENSIONS
    )
    shutil.copytree(sysconfig.get_path("stdlib"), stdlib_folder, ignore=ignore_filter)
    dynload_folder = Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    if not (stdlib_folder / "lib-dynload").exists():
        shutil.copytree(dynload_folder, stdlib_folder / "lib-dynload", ignore=ignore_filter)
    package_names = ("podwright", *_COPIED_PACKAGES)
    for package_name in package_names:
        module = import_module(package_name)
        target_path = stdlib_folder / package_name.replace(".", "/")
        target_path.parent.mkdir(exist_ok=True)
        if hasattr(module, "__path__"):
            cache_filter = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(next(iter(module.__path__)), target_path, ignore=cache_filter)
        else:
            shutil.copy2(str(module.__file__), target_path.with_suffix(".py"))


def _linked_libraries(files: Iterable[Path]) -> list[Path]:
    """Return the libraries that files are linked to, the loader among them. Raises Unavailable."""
    libraries: dict[str, Path] = {}
    try:
        output = subprocess.run(
            ["ldd", *map(str, files)], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        raise Unavailable("there is no ldd here", would_work="apt-get install libc-bin") from None
    for name, path, loader_path in _LDD_LINE_PATTERN.findall(output):
        library_path = Path(path or loader_path)
        libraries.setdefault(Path(name).name or library_path.name, library_path)
    return [path for path in libraries.values() if path.exists()]


def _write_script(path: Path, script_text: str) -> None:
    path.write_text(script_text, encoding="utf-8")
    path.chmod(0o755)
