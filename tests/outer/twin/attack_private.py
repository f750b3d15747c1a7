"""What another user can try against a twin that has no namespaces: to read its folder, and to speak
to its slurmctld with Slurm's own commands.

Arguments are the twin's folder, the port of its slurmctld, SlurmUser, and a folder of the attacker.
Each attempt prints its name and "reached" or "refused".
"""

import getpass
import socket
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "sinfo": ["sinfo", "-h", "-o", "%D"],
    "scontrol": ["scontrol", "show", "config"],
    "sbatch": ["sbatch", "--output=/dev/null", "--wrap=id"],
}
#: What a slurmd logs when slurmctld takes its registration, and when not.
REGISTERED, NOT_REGISTERED = "_handle_node_reg_resp", "Unable to register"
PATIENCE = 300.0  # seconds


def report(name: str, *, reached: bool) -> None:
    print(name, "reached" if reached else "refused", flush=True)


def readable(path: Path) -> bool:
    try:
        list(path.iterdir()) if path.is_dir() else path.read_bytes()
    except OSError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_conf(own: Path, port: str, user: str, identity: list[str]) -> Path:
    conf = own / "slurm.conf"
    lines = [
        *("ClusterName=twin", "SlurmctldHost=localhost", f"SlurmctldPort={port}"),
        *(f"SlurmUser={user}", f"SlurmdUser={getpass.getuser()}", f"SlurmdSpoolDir={own}/spool"),
        *(f"SlurmdPidFile={own}/slurmd.pid", "ProctrackType=proctrack/linuxproc"),
        *("TaskPlugin=task/none", "SlurmdParameters=config_overrides"),
        f"NodeName=n1 NodeAddr=127.0.0.1 Port={free_port()} CPUs=1 State=UNKNOWN",
        "PartitionName=p Nodes=ALL Default=YES",
        *identity,
    ]
    conf.write_text("\n".join(lines) + "\n")
    return conf


def registers(environment: dict[str, str], own: Path) -> bool:
    """Whether slurmctld takes the registration of a slurmd of the attacker."""
    log = own / "slurmd.log"
    with log.open("w") as output:
        slurmd = subprocess.Popen(
            ["slurmd", "-D", "-vv", "-N", "n1"], env=environment, stdout=output, stderr=output
        )
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            text = log.read_text()
            if REGISTERED in text or NOT_REGISTERED in text:
                return REGISTERED in text
            if slurmd.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"slurmd did not try to register: {log.read_text()}")
    finally:
        slurmd.kill()
        slurmd.wait()


def main() -> None:
    folder, port, user, mine = sys.argv[1:]
    for name in ("", "munge.key", "munge.socket", "etc/slurm.conf", "state/job_state"):
        report(f"folder/{name}", reached=readable(Path(folder, name)))
    own = Path(mine)
    identities = {
        "none": ["AuthType=auth/none", "CredType=cred/none"],
        "their munge": [
            *("AuthType=auth/munge", "CredType=cred/munge"),
            f"AuthInfo=socket={folder}/munge.socket",
        ],
        "own munge": [
            *("AuthType=auth/munge", "CredType=cred/munge"),
            f"AuthInfo=socket={own}/munge.socket",
        ],
    }
    (own / "munge.key").write_bytes(b"k" * 1024)
    (own / "munge.key").chmod(0o600)
    munged = subprocess.Popen(
        [
            *("munged", "--foreground", "--force", f"--socket={own}/munge.socket"),
            *(f"--key-file={own}/munge.key", f"--pid-file={own}/munge.pid"),
            f"--seed-file={own}/munge.seed",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not Path(own, "munge.socket").exists():
            time.sleep(0.05)
        for identity, lines in identities.items():
            conf = write_conf(own, port, user, lines)
            environment = {
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "SLURM_CONF": str(conf),
            }
            for name, command in COMMANDS.items():
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=False
                )
                report(f"{name} with {identity}", reached=done.returncode == 0)
            if getpass.getuser() != user:  # a registration would change the user's own twin
                report(f"slurmd with {identity}", reached=registers(environment, own))
    finally:
        munged.kill()
        munged.wait()


if __name__ == "__main__":
    main()
