"""A real Kubernetes for a test: etcd, API server, controller manager and scheduler, and nodes.

Without nodes everything listens on this machine's loopback, at ports of its own. With nodes it runs
in a network of its own, from which only the API server is reachable, at a port of the loopback.
"""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

from tests.outer.lab import LabError, poll
from tests.outer.lab._folder import end_processes, new_folder, remove
from tests.outer.lab._places import Inside
from tests.ports import free_ports

from . import _forward
from ._binaries import binaries
from ._daemons import Daemons
from ._http import KubeHttp
from ._images import base_images
from ._keys import Keys
from ._nodes import Node
from ._objects import Object
from ._plane import DAEMONS, SERVICE, Plane

#: Where the control plane is in a network of its own.
GATEWAY = "10.99.0.1"

T = TypeVar("T")


class KubeLab:
    """`with KubeLab(nodes=2) as lab: lab.apply(text); lab.get("pods", "p")["status"]`.

    nodes: real ones, called n1, n2, …; each costs a kubelet and a containerd. None need root.
    options: of a daemon, added to ours or replacing them ("" removes one): {"kube-apiserver": {"v":
    "4"}}.

    `kubeconfig` is an administrator's, for any client on this machine; `user` makes others. Pods
    may name the image localhost/busybox:lab, and those given to `load`. The only service address
    that works is the API server's (https://10.96.0.1), which pods reach. There is no DNS. Programs
    that pods must reach have to run in their network: `wrap`.
    """

    def __init__(
        self, *, nodes: int = 0, options: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.binaries = binaries()
        self.folder = new_folder()
        self.daemons = Daemons(self.folder, self.binaries.path)
        self.kubeconfig = self.folder / "admin.conf"
        self.images: list[Path] = []
        self._options = dict(options or {})
        self._network: subprocess.Popen[bytes] | None = None
        self._count = nodes
        self.nodes: dict[str, Node] = {}
        #: Where the API server is asked from here; nodes and its own ask it at _near.
        self.server = f"https://127.0.0.1:{free_ports(1)[0]}"
        self._near = f"https://{GATEWAY}:443" if nodes else self.server
        near = self._near.rpartition(":")[2]
        ports = free_ports(4)
        self._plane = Plane(
            self.binaries,
            self.folder,
            (ports[0], ports[1], int(near), ports[2], ports[3]),
            "0.0.0.0" if nodes else "127.0.0.1",
            GATEWAY if nodes else "127.0.0.1",
        )

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of processes that end with the lab."""
        return {**os.environ, "PODWRIGHT_LAB": str(self.folder), "PATH": self.binaries.path}

    # Life

    def start(self) -> None:
        """Start the lab. Returns when pods can be made, and all nodes are ready. Raises
        LabError.
        """
        self._make_keys()
        if self._count:
            self._make_network()
        self._start(DAEMONS[0])
        self._start(DAEMONS[1])
        self._await_apiserver()
        for name in DAEMONS[2:]:
            self._start(name)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._await("kube-controller-manager", account)
        if self._count:
            self.images.append(base_images(self.binaries, self.folder / "base.tar"))
        made = [Node(self, at) for at in range(1, self._count + 1)]
        self.nodes = {node.name: node for node in made}
        with ThreadPoolExecutor() as pool:
            list(pool.map(Node.boot, made))
        self.wait_for_nodes()

    def stop(self) -> None:
        """End the lab. Nothing of it is left."""
        for node in self.nodes.values():
            node.kill()
        if "http" in self.__dict__:
            self.http.close()
        self.daemons.end()
        end_processes(self.folder)
        if self._network is not None:
            self._network.wait()
        remove(self.folder)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Daemons: etcd, kube-apiserver, kube-controller-manager, kube-scheduler

    def kill(self, daemon: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill a daemon, and wait for its end."""
        self.daemons.kill(daemon, how)

    def restart(self, daemon: str) -> None:
        """Start a killed daemon. Returns when the API server answers, unless etcd is down."""
        self.daemons.restart(daemon)
        if all(self.daemons.alive(name) for name in DAEMONS[:2]):
            self._await_apiserver()

    def log(self, daemon: str = "kube-apiserver") -> str:
        return self.daemons.log(daemon)

    # Asking

    @cached_property
    def http(self) -> KubeHttp:
        """Return the administrator's client, for many requests."""
        own = f"user-{self.kubeconfig.name}"
        return KubeHttp(self.server, self.folder / "keys", own)

    def kubectl(
        self, *argv: str, stdin: str = "", kubeconfig: Path | None = None, timeout: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, or as a kubeconfig's user. Raises LabError if it
        hangs.
        """
        full = [self.binaries["kubectl"], f"--kubeconfig={kubeconfig or self.kubeconfig}", *argv]
        environment = {**self.environment, "HOME": str(self.folder)}
        try:
            return subprocess.run(
                full,
                env=environment,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LabError(f"kubectl {' '.join(argv)}: no end within {timeout:g} s") from error

    def ok(self, *argv: str, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """Return kubectl's output. Raises LabError with the output if it failed."""
        done = self.kubectl(*argv, stdin=stdin, kubeconfig=kubeconfig)
        if done.returncode != 0:
            raise LabError(f"kubectl {' '.join(argv)}: {done.stderr or done.stdout}")
        return done.stdout

    def apply(
        self, what: str | Path | Object | Iterable[Object], namespace: str = "default"
    ) -> str:
        """Apply YAML, a file of it, or objects in the form of JSON, on the server, since files may
        be large.
        """
        if isinstance(what, Path):
            what = what.read_text()
        elif not isinstance(what, str):
            items = [what] if isinstance(what, dict) else list(what)
            what = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        options = ("--server-side", "--force-conflicts", f"--namespace={namespace}")
        return self.ok("apply", *options, "--filename=-", stdin=what)

    def get(self, kind: str, name: str = "", namespace: str = "default") -> Object:
        """Return one object, or a list of all of a kind ("items"); {} if there is no such
        object.
        """
        options = ["--output=json", "--ignore-not-found", f"--namespace={namespace}"]
        said = self.ok("get", kind, *([name] if name else []), *options)
        if not said.strip():  # newer ones print no empty list either
            return {} if name else {"items": []}
        found: Object = json.loads(said)
        return found

    def wait(
        self,
        what: str,
        kind: str,
        name: str,
        probe: Callable[[Object], T | None],
        *,
        namespace: str = "default",
        seconds: float = 60.0,
    ) -> T:
        """Poll one object until `probe` of it ({} if there is none) is true. Returns the result."""
        last: Object = {}

        def there() -> T | None:
            nonlocal last
            last = self.get(kind, name, namespace)
            return probe(last)

        try:
            return poll(what, there, seconds=seconds, every=0.2)
        except LabError as error:
            raise LabError(f"{error}\n{json.dumps(last, indent=1)[-4000:]}") from error

    def wait_established(self, definition: str) -> None:
        """Poll until objects of a kind can be made: "ipujobs.graphcore.ai", just applied.

        `kubectl wait` of 1.20 fails for a definition that has no conditions yet.
        """
        what = f"{definition} established"
        self.wait(what, "customresourcedefinition", definition, is_established)

    def wait_phase(self, pod: str, *phases: str, namespace: str = "default") -> Object:
        """Poll until a pod is in one of these phases. Returns the pod."""

        def in_phase(found: Object) -> Object | None:
            return found if found.get("status", {}).get("phase") in phases else None

        what = f"pod {pod} {' or '.join(phases)}"
        return self.wait(what, "pod", pod, in_phase, namespace=namespace)

    def wait_for_nodes(self, *names: str, ready: bool = True) -> None:
        """Wait until these nodes (all real ones by default) are ready, or are not."""
        for name in names or self.nodes:
            try:
                self.wait(
                    f"node {name} {'' if ready else 'not '}ready",
                    "node",
                    name,
                    lambda node: bool(node) and is_ready(node) == ready,
                )
            except LabError as error:
                raise LabError(f"{error}\n{self.nodes[name].log()[-3000:]}") from error

    def user(self, name: str, groups: Sequence[str] = (), path: Path | None = None) -> Path:
        """Make a kubeconfig for another user; one at `path` works in the nodes' network."""
        if path is not None:
            return self._keys.kubeconfig(path, self._near, name, groups)
        return self._keys.kubeconfig(self.folder / f"{name}.conf", self.server, name, groups)

    # Nodes

    def node(self, name: str) -> Node:
        return self.nodes[name]

    def load(self, archive: Path) -> None:
        """Load an image archive onto every node, and onto nodes that are revived later."""
        self.images.append(archive)
        for node in self.nodes.values():
            if node.is_up:
                node.load(archive)

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """Return the words that run a command in the pods' network, in which its address is
        GATEWAY.
        """
        if self._network is None:
            return list(argv)
        return Inside(self._network.pid, spaces="-n").wrap(argv)

    def in_network(self, *argv: str) -> None:
        """Run a command in the pods' network. Raises LabError if it fails."""
        done = subprocess.run(self.wrap(argv), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LabError(f"{' '.join(argv)}: {done.stderr.strip()}")

    # Inside

    def _start(self, name: str) -> None:
        self.daemons.start(name, self.wrap(self._plane.argv(name, self._options.get(name, {}))))

    def _make_keys(self) -> None:
        self._keys = Keys(self.folder / "keys")
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        names.append("kubernetes.default.svc.cluster.local")
        addresses = ["127.0.0.1", GATEWAY, SERVICE]
        known_as = [f"IP:{address}" for address in addresses] + [f"DNS:{name}" for name in names]
        self._keys.server("server", known_as)
        self._keys.client("to-kubelets", "kube-apiserver", ["system:masters"])
        self._keys.client("front", "front", by="front-ca")
        self._keys.kubeconfig(self.kubeconfig, self.server, "admin", ["system:masters"])
        for name in DAEMONS[2:]:
            self.user(f"system:{name}", path=self.folder / f"{name}.conf")

    def _make_network(self) -> None:
        self._network = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        own, its = os.readlink("/proc/self/ns/net"), f"/proc/{self._network.pid}/ns/net"
        poll("the network", lambda: os.readlink(its) != own)
        for step in (
            "link set lo up",
            f"address add {SERVICE}/32 dev lo",
            "link add br0 type bridge",
            f"address add {GATEWAY}/24 dev br0",
            "link set br0 up",
        ):
            self.in_network("ip", *step.split())
        self.in_network("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        port = int(self.server.rpartition(":")[2])
        with socket.create_server(("127.0.0.1", port), backlog=512) as listening:
            argv = [sys.executable, _forward.__file__, str(listening.fileno()), GATEWAY, "443"]
            self.daemons.start("forward", self.wrap(argv), keep=[listening.fileno()])

    def _await_apiserver(self) -> None:
        self._await("kube-apiserver", "/readyz")

    def _await(self, daemon: str, path: str) -> None:
        """Wait until the API server has the object at that path."""

        def there() -> bool:
            self.daemons.check(daemon)
            try:
                with urllib.request.urlopen(self.server + path, context=context, timeout=5):
                    return True
            except (OSError, http.client.HTTPException):
                return False

        keys = self.folder / "keys"
        context = ssl.create_default_context(cafile=keys / "ca.crt")
        own = f"user-{self.kubeconfig.name}"
        context.load_cert_chain(keys / f"{own}.crt", keys / f"{own}.key")
        poll(daemon, there, seconds=60, every=0.1)


def is_ready(node: Object) -> bool:
    """Return whether an object's conditions show that it is ready."""
    return _is(node, "Ready")


def is_established(definition: Object) -> bool:
    """Return whether a definition's conditions show that it is established. A new one has
    none yet.
    """
    return _is(definition, "Established")


def _is(item: Object, condition: str) -> bool:
    found = (item.get("status") or {}).get("conditions") or []
    return any(one["type"] == condition and one["status"] == "True" for one in found)
