"""Runs a command as an ordinary user to whom the kernel grants no user namespace.

Arguments are the uid and the command; root alone may run it. The process enters a user namespace
that maps every user to itself, sets user.max_user_namespaces to 0 there, and becomes the user.
"""

import ctypes
import os
import pwd
import sys
from pathlib import Path

NEW_USER = 0x10000000
EVERYBODY = "0 0 65536"


def main() -> None:
    uid, *command = sys.argv[1:]
    process = os.getpid()
    entered, enter = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(enter)
        os.read(entered, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process}/{name}").write_text(EVERYBODY)
        os._exit(0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_USER) != 0:
        sys.exit("no user namespace for the test")
    os.write(enter, b"x")
    if os.waitpid(mapper, 0)[1] != 0:
        sys.exit("the users are not mapped")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    os.setgroups([])
    gid = pwd.getpwuid(int(uid)).pw_gid
    os.setresgid(gid, gid, gid)
    os.setresuid(int(uid), int(uid), int(uid))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
