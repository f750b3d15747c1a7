"""The daemons of a control plane, and the command of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ._binaries import Binaries
from ._daemons import as_options

#: In the order in which they start.
DAEMONS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
#: The first address of the services' range: the API server's own, as pods see it.
SERVICES, SERVICE = "10.96.0.0/16", "10.96.0.1"


@dataclass(frozen=True)
class Plane:
    """keys: the folder of certificates. ports: of etcd, its peers, the API server, the controller
    manager and the scheduler. at: the address on which the API server listens, "0.0.0.0" if nodes
    need it too. advertised: the address that it announces.
    """

    binaries: Binaries
    folder: Path
    ports: tuple[int, int, int, int, int]
    at: str
    advertised: str

    def argv(self, name: str, added: Mapping[str, str]) -> list[str]:
        """Return the command of a daemon. `added` options override ours, and "" removes an
        option.
        """
        settings = {
            "etcd": self._etcd,
            "kube-apiserver": self._apiserver,
            "kube-controller-manager": self._manager,
            "kube-scheduler": self._scheduler,
        }[name]()
        return [self.binaries[name], *as_options({**settings, **added})]

    def _etcd(self) -> dict[str, str]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in self.ports[:2])
        return {
            "name": "lab",
            "data-dir": f"{self.folder}/etcd",
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"lab={peers}",
            # A lab outlives no power cut, and its machine's disk has others to serve.
            "unsafe-no-fsync": "true",
        }

    def _apiserver(self) -> dict[str, str]:
        keys = f"{self.folder}/keys"
        return {
            "etcd-servers": f"http://127.0.0.1:{self.ports[0]}",
            "bind-address": self.at,
            "advertise-address": self.advertised,
            "secure-port": str(self.ports[2]),
            "endpoint-reconciler-type": "none" if self.at == "127.0.0.1" else "lease",
            "service-cluster-ip-range": SERVICES,
            "cert-dir": keys,
            "tls-cert-file": f"{keys}/server.crt",
            "tls-private-key-file": f"{keys}/server.key",
            "client-ca-file": f"{keys}/ca.crt",
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": f"{keys}/accounts.pub",
            "service-account-signing-key-file": f"{keys}/accounts.key",
            "kubelet-client-certificate": f"{keys}/to-kubelets.crt",
            "kubelet-client-key": f"{keys}/to-kubelets.key",
            "kubelet-preferred-address-types": "InternalIP",
            "requestheader-client-ca-file": f"{keys}/front-ca.crt",
            "requestheader-allowed-names": "front",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-username-headers": "X-Remote-User",
            "proxy-client-cert-file": f"{keys}/front.crt",
            "proxy-client-key-file": f"{keys}/front.key",
        }

    def _manager(self) -> dict[str, str]:
        keys = f"{self.folder}/keys"
        return {
            **self._asks("kube-controller-manager", self.ports[3]),
            "use-service-account-credentials": "true",
            "service-account-private-key-file": f"{keys}/accounts.key",
            "root-ca-file": f"{keys}/ca.crt",
            "cluster-signing-cert-file": f"{keys}/ca.crt",
            "cluster-signing-key-file": f"{keys}/ca.key",
        }

    def _scheduler(self) -> dict[str, str]:
        return self._asks("kube-scheduler", self.ports[4])

    def _asks(self, name: str, port: int) -> dict[str, str]:
        conf = f"{self.folder}/{name}.conf"
        return {
            "kubeconfig": conf,
            "authentication-kubeconfig": conf,
            "authorization-kubeconfig": conf,
            "bind-address": "127.0.0.1",
            "secure-port": str(port),
            "cert-dir": f"{self.folder}/keys/{name}",
            "leader-elect": "false",
            # Older ones listen without TLS too, at every address.
            "port": "0" if self.binaries.version < (1, 24) else "",
        }
