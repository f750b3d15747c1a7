"""A lab's accounts: MariaDB and slurmdbd of its own, started before slurmctld."""

from __future__ import annotations

import shutil
import subprocess

from tests.ports import free_ports

from ._folder import LabError, poll
from ._places import ALICE, BOB, Here
from ._slurm import SlurmLab

PASSWORD = "lab"  # of a database that listens on loopback while a test runs


class Accounts(SlurmLab):
    """Mixed into a lab whose `start` calls `start_accounts` before slurmctld.

    accounts_keys: the settings of slurm.conf that say where they are.
    """

    accounts_keys = (
        "AccountingStorageType",
        "AccountingStorageHost",
        "AccountingStoragePort",
        "AccountingStoragePass",
    )

    def accounts_conf(self) -> dict[str, str]:
        """Settings of slurm.conf; called before the lab is made."""
        self._ports = free_ports(2)
        values = (
            "accounting_storage/slurmdbd",
            "127.0.0.1",
            str(self._ports[1]),
            "@LAB@/munge.socket",
        )
        return dict(zip(self.accounts_keys, values, strict=True))

    def account(self, *words: str) -> str:
        return self.ok("sacctmgr", "-i", *words)

    def start_accounts(self) -> None:
        data = self.folder / "mysql"
        argv = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}"]
        argv += ["--auth-root-authentication-method=socket", "--skip-test-db"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(done.stderr + done.stdout)
        sock = self.folder / "mysql.sock"
        self._account("mariadbd", [
            "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={sock}",
            "--bind-address=127.0.0.1", f"--port={self._ports[0]}", "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=0", f"--pid-file={self.folder}/mysql.pid",
        ])  # fmt: skip
        grant = "create database slurm; grant all on slurm.* to slurm@'127.0.0.1' identified by "
        client = ["mariadb", "--no-defaults", f"--socket={sock}", "-e", f"{grant}'{PASSWORD}'"]
        poll("the database", lambda: subprocess.run(client, capture_output=True).returncode == 0)
        conf = self.write(
            "slurmdbd.conf",
            f"""\
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={self._ports[1]}
SlurmUser=root
LogFile={self.folder}/log/slurmdbd.log
PidFile={self.folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={self._ports[0]}
StorageUser=slurm
StoragePass={PASSWORD}
StorageLoc=slurm
""",
        )
        conf.chmod(0o600)
        self._account("slurmdbd", ["slurmdbd", "-D"])
        poll("slurmdbd", lambda: self.run("sacctmgr", "-n", "show", "cluster").returncode == 0)
        self.account("add", "cluster", "lab")
        self.account("add", "account", "science")
        for user in (ALICE, BOB, "root"):
            self.account("add", "user", user, "account=science")

    def _account(self, name: str, argv: list[str]) -> None:
        command = shutil.which(argv[0], path="/usr/sbin:/usr/bin")
        if command is None:
            raise LabError(f"no {argv[0]}: bash tests/outer/install.sh")
        # The database is this machine's own, whichever Slurm's accounts it keeps.
        place = self._here if name == "slurmdbd" else Here()
        self._spawn(name, place, [command, *argv[1:]])
