"""Container images made from files: archives for `KubeLab.load`, without a registry or a daemon."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ._binaries import Binaries

_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}
#: What busybox answers to in these images: a shell, and what small scripts need.
_COMMANDS = (
    "awk basename cat chmod cp cut date dirname echo env false find grep head hostname id ip kill "
    "ln ls mkdir mv nc ps printenv printf pwd rm sed sh sleep sort stat tail tar test touch tr "
    "true uname wc wget xargs"
)


def write_image(
    path: Path, names: Mapping[str, Sequence[str]], layers: Sequence[bytes], path_of: str = "/bin"
) -> Path:
    """Write an archive (as `docker save` makes it) to `path`, whose images share these layers.

    names: of each image ("localhost/busybox:lab"), with its default command. layers: tar files, the
    lowest first. path_of: PATH in it.
    """
    hashes = [hashlib.sha256(layer).hexdigest() for layer in layers]
    manifest = []
    with tarfile.open(path, "w") as archive:
        for layer, known in zip(layers, hashes, strict=True):
            _add(archive, f"{known}/layer.tar", layer)
        for name, command in names.items():
            about = {
                "architecture": _ARCHITECTURE[platform.machine()],
                "os": "linux",
                "config": {"Cmd": list(command), "Env": [f"PATH={path_of}"]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{known}" for known in hashes]},
                "history": [{"created_by": name} for _ in hashes],
            }
            config = json.dumps(about).encode()
            at = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(archive, at, config)
            parts = [f"{known}/layer.tar" for known in hashes]
            manifest.append({"Config": at, "RepoTags": [name], "Layers": parts})
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return path


def base_images(files: Binaries, path: Path) -> Path:
    """Make localhost/busybox:lab, which has only a shell, and localhost/pause:lab."""
    pause = ["/bin/sleep", str(2**31 - 1)]
    names = {"localhost/busybox:lab": ["sh"], "localhost/pause:lab": pause}
    return write_image(path, names, [busybox_layer(files)])


def busybox_layer(files: Binaries) -> bytes:
    """Return a shell, and the programs that small scripts need."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "var"):
            about = tarfile.TarInfo(folder)
            about.type, about.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(about)
        _add(tar, "bin/busybox", Path(files["busybox"]).read_bytes(), 0o755)
        for command in _COMMANDS.split():
            about = tarfile.TarInfo(f"bin/{command}")
            about.type, about.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(about)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _add(tar, "etc/group", b"root:x:0:\n")
    return layer.getvalue()


def folder_layer(folder: Path, place: str) -> bytes:
    """Return a folder's files, at that place, owned by root."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(folder, place.lstrip("/"), filter=_of_root)
    return layer.getvalue()


def _of_root(about: tarfile.TarInfo) -> tarfile.TarInfo:
    about.uid = about.gid = 0
    about.uname = about.gname = "root"
    return about


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode = len(data), mode
    tar.addfile(about, io.BytesIO(data))
