"""Writes podwright_v1.proto, and makes the messages of all .proto files: `make proto`.

A test compares the result with what is committed.

Service stubs are left out: both fronts and the client are driven by tables, and generated stubs
would tie the package to the very grpcio that made them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
FOLDER = "podwright/wire"
PROTOS = ("virmgrpc", "podwright_v1", "podwright_agent_v1")


def generate(into: Path, *, stubs: bool = False) -> list[Path]:
    """Write `<proto>_pb2.py` (and, with stubs, `<proto>_pb2_grpc.py`) into a folder.

    Raises RuntimeError when the compiler refuses a file.
    """
    import grpc_tools
    from grpc_tools import protoc

    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as scratch:
        arguments = ["protoc", f"-I{SOURCE}", f"-I{well_known}", f"--python_out={scratch}"]
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


def write_proto(path: Path) -> Path:
    """Write podwright_v1.proto from the values and calls in `podwright.wire`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from podwright.wire._generated import podwright_v1_pb2
    from tools.write_proto import Known, proto

    file = FileDescriptorProto()
    podwright_v1_pb2.DESCRIPTOR.CopyToProto(file)
    path.write_text(proto(Known(file)))
    return path


if __name__ == "__main__":
    write_proto(SOURCE / FOLDER / "podwright_v1.proto")
    folder = SOURCE / FOLDER / "_generated"
    for written in generate(folder):
        sys.stdout.write(f"{written.relative_to(SOURCE.parent)}\n")
