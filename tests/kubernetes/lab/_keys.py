"""The identities in a lab: its own authority, certificates by openssl, and kubeconfigs with
them.
"""

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.outer.lab import LabError
from tests.outer.lab._places import need

_CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
_DAYS = ["-days", "30"]


class Keys:
    """A folder of keys and certificates; `ca.crt` and `front-ca.crt` are its two authorities.

    ca signs servers and all clients of the API server. front-ca signs the proxy that aggregated API
    servers trust to name the user of a request.
    """

    def __init__(self, folder: Path) -> None:
        need("openssl")
        self.folder = folder
        folder.mkdir(mode=0o700)
        for name in ("ca", "front-ca"):
            argv = ["req", "-x509", *_CURVE, *_DAYS, "-subj", f"/CN=podwright-lab-{name}"]
            argv += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
            self._openssl([*argv, "-keyout", f"{name}.key", "-out", f"{name}.crt"])
        self._openssl(["genrsa", "-out", "accounts.key", "2048"])
        self._openssl(["rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub"])

    def server(self, name: str, at: Sequence[str]) -> None:
        """Make a certificate for a server at these addresses, in openssl's form: IP:127.0.0.1."""
        use = ["extendedKeyUsage=serverAuth", f"subjectAltName={','.join(at)}"]
        self._sign(name, f"/CN={name}", use, "ca")

    def client(self, name: str, user: str, groups: Sequence[str] = (), *, by: str = "ca") -> None:
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        self._sign(name, subject, ["extendedKeyUsage=clientAuth"], by)

    def kubeconfig(self, path: Path, server: str, user: str, groups: Sequence[str] = ()) -> Path:
        """Write how this user reaches the server, in one file that only its owner may read."""
        name = f"user-{path.name}"
        self.client(name, user, groups)
        who = {
            "client-certificate-data": self._encoded(f"{name}.crt"),
            "client-key-data": self._encoded(f"{name}.key"),
        }
        where = {"server": server, "certificate-authority-data": self._encoded("ca.crt")}
        whole = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": where}],
            "users": [{"name": "lab", "user": who}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(whole, indent=1))
        return path

    def _sign(self, name: str, subject: str, extensions: Sequence[str], by: str) -> None:
        argv = ["req", "-new", *_CURVE, "-subj", subject]
        self._openssl([*argv, "-keyout", f"{name}.key", "-out", f"{name}.csr"])
        (self.folder / f"{name}.ext").write_text("\n".join(extensions) + "\n")
        argv = ["x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.crt", "-CAkey", f"{by}.key"]
        argv += [*_DAYS, "-CAcreateserial", "-extfile", f"{name}.ext"]
        self._openssl([*argv, "-out", f"{name}.crt"])

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()

    def _openssl(self, argv: Sequence[str]) -> None:
        done = subprocess.run(
            ["openssl", *argv], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise LabError(f"openssl {' '.join(argv)}: {done.stderr}")
