"""Writes podwright_v1.proto, and makes the messages of all .proto files: `make proto`.

All files are made aside first, and put in place only once all of them are there: a mistake leaves
everything as it was. `--check` writes nothing, and fails when a file is not what would be made;
`make check` does that.

Service stubs are left out: both fronts and the client are driven by tables, and generated stubs
would tie the package to the very grpcio that made them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
FOLDER = "podwright/wire"
PROTOS = ("virmgrpc", "podwright_v1", "podwright_agent_v1")


def generate(into: Path, *, stubs: bool = False, source: Path = SOURCE) -> list[Path]:
    """Write `<proto>_pb2.py` (and, with stubs, `<proto>_pb2_grpc.py`) into a folder.

    source: where the .proto files are. Raises RuntimeError when the compiler refuses a file.
    """
    import grpc_tools
    from grpc_tools import protoc

    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as scratch:
        arguments = ["protoc", f"-I{source}", f"-I{well_known}", f"--python_out={scratch}"]
        if stubs:
            arguments.append(f"--grpc_python_out={scratch}")
        if protoc.main([*arguments, *(f"{FOLDER}/{name}.proto" for name in PROTOS)]) != 0:
            raise RuntimeError("the protocol compiler refused; its reasons stand above")
        made = []
        for path in sorted(Path(scratch, FOLDER).glob("*.py")):
            text = path.read_text().replace(
                "from podwright.wire import", "from podwright.wire._generated import"
            )
            target = into / path.name
            target.write_text(text)
            made.append(target)
        return made


def proto_text() -> str:
    """The text of podwright_v1.proto, from the values and calls in `podwright.wire`.

    Raises `write_proto.NameTaken` where two things have one name.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from podwright.wire._generated import podwright_v1_pb2
    from tools.write_proto import Known, proto

    file = FileDescriptorProto()
    podwright_v1_pb2.DESCRIPTOR.CopyToProto(file)
    return proto(Known(file))


def made_aside(folder: Path) -> dict[Path, Path]:
    """Make all generated files in an empty folder: where each is, by where it belongs."""
    protos = folder / FOLDER
    protos.mkdir(parents=True)
    for name in PROTOS:
        shutil.copy(SOURCE / FOLDER / f"{name}.proto", protos)
    proto = protos / "podwright_v1.proto"
    proto.write_text(proto_text())
    messages = protos / "_generated"
    messages.mkdir()
    files = [proto, *generate(messages, source=folder)]
    return {SOURCE / file.relative_to(folder): file for file in files}


def put_in_place(made: dict[Path, Path]) -> None:
    """Copy each file beside its place, then rename all: an error before that changes nothing."""
    ready = {}
    try:
        for place, file in made.items():
            ready[place] = place.with_name(f".{place.name}.new")
            shutil.copyfile(file, ready[place])
        for place, file in ready.items():
            os.replace(file, place)
    finally:
        for file in ready.values():
            file.unlink(missing_ok=True)


def stale(made: dict[Path, Path]) -> list[Path]:
    """The files that are not what was made."""
    return [p for p, file in made.items() if not p.exists() or p.read_bytes() != file.read_bytes()]


def main(words: list[str]) -> int:
    """The command; returns its exit code."""
    from tools.write_proto import NameTaken

    parser = argparse.ArgumentParser(prog="python -m tools.generate_wire")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 for a stale file")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            made = made_aside(Path(scratch))
        except (NameTaken, RuntimeError) as error:
            sys.stderr.write(f"make proto: {error}. Nothing was written.\n")
            return 1
        old = stale(made)
        if not options.check:
            put_in_place(made)
            for place in made:
                sys.stdout.write(f"{place.relative_to(SOURCE.parent)}\n")
            return 0
    for place in old:
        sys.stderr.write(
            f"{place.relative_to(SOURCE.parent)} is not what the values in podwright/wire make: "
            "run make proto, and commit what it writes\n"
        )
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
