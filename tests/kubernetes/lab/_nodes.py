"""Simulated nodes: each is a kubelet with containerd and runc, in namespaces of its own.

Network, mounts, processes, name and control groups are the node's own. All nodes of a lab are on
one bridge, in the network in which its control plane runs too. The data of kubelet and containerd
is in memory and is lost with the node. `kill` is a crash: everything in it dies at once. `revive`
boots it again under the same name and address.
"""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.outer.lab import LabError, poll
from tests.outer.lab._places import Inside

from ._cgroups import NodeCgroups

if TYPE_CHECKING:
    from ._kube import KubeLab

#: Sleeps until it is to boot: its network card must be there first. Then joins its control groups
#: ($3 and on), and goes on in a namespace of these. $1: its name, $2: the script that boots it.
_FIRST = """\
set -e
read -r _
name=$1; boot=$2; shift 2
for file; do echo 0 >"$file"; done
exec unshare --cgroup bash "$boot" "$name"
"""

#: kubelet would set these for the whole machine: it is shown files that hold what it wants.
_KERNEL = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}

_BOOT = """\
set -e
hostname "$1"
{cgroups}
for folder in /run /var/lib /var/log; do mount -t tmpfs none $folder; done
mkdir -p /run/lock /run/kernel /run/cni /var/lib/kubelet
while read -r name value; do
    [ -e "/proc/sys/$name" ] || continue
    echo "$value" >"/run/kernel/${{name//\\//.}}"
    mount --bind "/run/kernel/${{name//\\//.}}" "/proc/sys/$name"
done <<END
{kernel}
END
echo 1 >/proc/sys/net/ipv4/ip_forward
touch {folder}/ready
trap 'exit 0' TERM
while :; do sleep 3600 & wait $!; done
"""

_CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:lab"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni}"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""

_CNI = """\
{{"cniVersion": "0.4.0", "name": "lab", "plugins": [{{"type": "bridge", "bridge": "cni0",
  "isGateway": true, "ipMasq": false, "ipam": {{"type": "host-local", "dataDir": "/run/cni",
  "ranges": [[{{"subnet": "{pods}"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}
"""

_KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
readOnlyPort: 0
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: false}}
  x509: {{clientCAFile: {ca}}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
failSwapOn: false
makeIPTablesUtilChains: false
resolvConf: ""
enforceNodeAllocatable: [pods]
evictionHard: {{memory.available: "50Mi", nodefs.available: "1%", imagefs.available: "1%"}}
imageGCHighThresholdPercent: 100
volumePluginDir: /var/lib/kubelet/plugins
nodeStatusUpdateFrequency: 5s
"""


class Node:
    """One node of a KubeLab: `kill()`, `revive()`, `kill_daemon("kubelet")`, `exec("ls")`."""

    def __init__(self, lab: "KubeLab", at: int) -> None:
        self.name = f"n{at}"
        self.address = f"10.99.0.{10 + at}"
        self.pods = f"10.98.{at}.0/24"
        self._lab, self._card = lab, f"v{at}"
        self._folder = lab.folder / self.name
        self.cgroups = NodeCgroups(f"{lab.folder.name}.{self.name}")
        self._holder: subprocess.Popen[bytes] | None = None
        self._prepare()

    def _prepare(self) -> None:
        files, at = self._lab.binaries, self._folder
        (at / "cni").mkdir(parents=True)
        self._lab.user(f"system:node:{self.name}", ["system:nodes"], at / "kubelet.conf")
        (at / "boot").write_text(
            _BOOT.format(
                cgroups=self.cgroups.mounts,
                kernel="\n".join(f"{name} {value}" for name, value in _KERNEL.items()),
                folder=at,
            )
        )
        (at / "cni" / "10-lab.conflist").write_text(_CNI.format(pods=self.pods))
        (at / "containerd.toml").write_text(
            _CONTAINERD.format(cni=files["cni"], runc=files["runc"], folder=at)
        )
        config = _KUBELET.format(address=self.address, ca=self._lab.folder / "keys/ca.crt")
        if files.version >= (1, 27):
            config += "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"
        if files.version >= (1, 31):
            config += "failCgroupV1: false\n"
        (at / "kubelet.yaml").write_text(config)

    # Life

    def boot(self) -> None:
        """Boot the node. Returns when containerd answers and has the lab's images, and kubelet is
        started.
        """
        self.cgroups.make()
        (self._folder / "ready").unlink(missing_ok=True)
        spaces = ["--net", "--mount", "--uts", "--pid", "--ipc", "--propagation", "private"]
        with (self._folder / "boot.log").open("wb") as log:
            argv = [
                "unshare",
                *spaces,
                "--fork",
                "--kill-child",
                "--mount-proc",
                "bash",
                "-c",
                _FIRST,
            ]
            argv += ["-", self.name, str(self._folder / "boot"), *self.cgroups.joined_by_first]
            self._holder = subprocess.Popen(
                argv,
                env=self._lab.environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._connect()
        assert self._holder.stdin is not None
        self._holder.stdin.write(b"\n")
        self._holder.stdin.close()
        ready = self._folder / "ready"

        def booted() -> bool:
            if not self.is_up:
                raise LabError(f"{self.name}: {(self._folder / 'boot.log').read_text()}")
            return ready.exists()

        poll(f"boot of {self.name}", booted)
        files, daemons = self._lab.binaries, self._lab.daemons
        containerd = [files["containerd"], "--config", f"{self._folder}/containerd.toml"]
        daemons.start(self._daemon("containerd"), self.wrap(containerd), command="containerd")
        self._await_containerd()
        for archive in self._lab.images:
            self.load(archive)
        kubelet = [files["kubelet"], f"--config={self._folder}/kubelet.yaml"]
        kubelet += [f"--kubeconfig={self._folder}/kubelet.conf", "--root-dir=/var/lib/kubelet"]
        kubelet += ["--cert-dir=/var/lib/kubelet/pki", f"--hostname-override={self.name}"]
        kubelet += [f"--node-ip={self.address}"]
        if files.version < (1, 27):
            kubelet += ["--container-runtime=remote"]
            kubelet += ["--container-runtime-endpoint=unix:///run/containerd/containerd.sock"]
        daemons.start(self._daemon("kubelet"), self.wrap(kubelet), command="kubelet")

    @property
    def is_up(self) -> bool:
        return self._holder is not None and self._holder.poll() is None

    def kill(self) -> None:
        """Cut its power: no process in it can clean up."""
        if self._holder is None:
            return
        self._holder.send_signal(signal.SIGKILL)  # unshare --kill-child takes all along
        self._holder.wait()
        self._holder = None
        for name in ("kubelet", "containerd"):
            self._lab.daemons.forget(self._daemon(name))
        self.cgroups.remove()

    def revive(self) -> None:
        """Boot the node again. Raises LabError if it is up."""
        if self.is_up:
            raise LabError(f"{self.name} is up")
        self.boot()

    # Daemons: "kubelet" and "containerd"

    def kill_daemon(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        self._lab.daemons.kill(self._daemon(name), how)

    def restart_daemon(self, name: str) -> None:
        """Restart a daemon, and return when it answers: a newer kubelet ends if containerd is away
        at its start.
        """
        self._lab.daemons.restart(self._daemon(name))
        if name == "containerd":
            self._await_containerd()
        else:
            self._await_kubelet()

    def daemon_pid(self, name: str) -> int:
        return self._lab.daemons.pid(self._daemon(name))

    def log(self, name: str = "kubelet") -> str:
        return self._lab.daemons.log(self._daemon(name))

    # Inside

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """Return the words that run a command in the node."""
        enter = f"--target={self._first_process()}"
        spaces = ["--net", "--mount", "--uts", "--pid", "--ipc", "--cgroup"]
        join = (
            'n=$1; shift; while [ $n -gt 0 ]; do echo 0 >"$1"; shift; n=$((n-1)); done; exec "$@"'
        )
        joined = self.cgroups.joined
        words = ["sh", "-ec", join, "-", str(len(joined)), *joined]
        return [*words, "nsenter", enter, *spaces, "--", *argv]

    def exec(self, *argv: str) -> str:
        """Return the output of a command in the node. Raises LabError if it fails."""
        done = subprocess.run(
            self.wrap(argv), env=self._lab.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise LabError(f"{self.name}: {' '.join(argv)}: {done.stdout}{done.stderr}")
        return done.stdout

    def ctr(self, *argv: str) -> str:
        """Run containerd's own client, in the namespace of Kubernetes."""
        return self.exec(self._lab.binaries["ctr"], "--namespace", "k8s.io", *argv)

    def load(self, archive: Path) -> None:
        """Load an image archive, which pods on the node may name from then on."""
        self.ctr("images", "import", str(archive))

    def _daemon(self, name: str) -> str:
        return f"{self.name}.{name}"

    def _first_process(self) -> int:
        if self._holder is None or self._holder.poll() is not None:
            raise LabError(f"{self.name} is down")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        return int(poll(f"first process of {self.name}", lambda: children.read_text().split())[0])

    def _await_containerd(self) -> None:
        def answers() -> bool:
            self._lab.daemons.check(self._daemon("containerd"))
            try:
                return bool(self.ctr("version"))
            except LabError:
                return False

        poll(f"containerd of {self.name}", answers, every=0.2)

    def _await_kubelet(self) -> None:
        asking = [self._lab.binaries["busybox"], "wget", "-q", "-O-"]

        def answers() -> bool:
            self._lab.daemons.check(self._daemon("kubelet"))
            try:
                return self.exec(*asking, "http://127.0.0.1:10248/healthz") == "ok"
            except LabError:
                return False

        poll(f"kubelet of {self.name}", answers, every=0.2)

    def _connect(self) -> None:
        """Connect its network card to the lab's bridge, and set the route to its pods."""
        pid = self._first_process()
        inside = Inside(pid, spaces="-n")
        network = self._lab.in_network
        peer = ("peer", "name", "eth0", "netns", str(pid))
        network("ip", "link", "add", self._card, "type", "veth", *peer)
        network("ip", "link", "set", self._card, "master", "br0", "up")
        for step in (
            # The same card after a crash, as with a real one: neighbours remember its address.
            f"link set eth0 address 02:00:00:00:01:{int(self._card[1:]):02x}",
            f"address add {self.address}/24 dev eth0",
            "link set eth0 up",
            "link set lo up",
            "route add default via 10.99.0.1",
        ):
            done = subprocess.run(inside.wrap(["ip", *step.split()]), check=False)
            if done.returncode != 0:
                raise LabError(f"{self.name}: ip {step}")
        network("ip", "route", "replace", self.pods, "via", self.address)
