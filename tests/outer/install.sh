#!/bin/bash
# What the third ring of tests needs from Debian: real Slurm, MUNGE, sshd, PostgreSQL, compilers.
# Installs only what is missing, through the machine's own apt sources, and starts nothing:
# each test lab brings up daemons of its own, on its own ports.
set -euo pipefail

packages=(
    slurmctld slurmd slurm-client slurm-wlm-basic-plugins libslurm-dev slurmdbd
    munge libmunge-dev libpmix-dev
    openssh-server openssh-client rsync
    hwloc postgresql mariadb-server
    iproute2 util-linux debootstrap systemd keepalived curl openssl
    gcc libc6-dev make valgrind
    prometheus chromium nginx
    lua5.1 lua5.3 lua5.4
    buildah python3-venv
)
# What only the large tests start.
[ "${PODWRIGHT_SOAK:-}" != 1 ] || packages+=(podman crun)

# What runs Prism, the judge of HTTP interfaces; it comes from npm itself (tests/outer/prism).
command -v npm >/dev/null || packages+=(nodejs npm)

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

if [ "$(id -u)" -ne 0 ]; then
    echo "Missing packages: ${missing[*]}. Installing them needs root: run this as root." >&2
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "The outer tests run on Debian (apt-get not found). Missing: ${missing[*]}" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
# invoke-rc.d asks policy-rc.d whether it may start a daemon; 101 means no. A policy that
# the machine already has is left alone, and ours is taken away again at the end.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

install_missing() {
    apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 \
        install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1
}

log=$(mktemp)
echo "Installing: ${missing[*]}"
if ! install_missing; then
    # The package lists may be absent or old.
    apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 update
    install_missing || { cat "$log" >&2; exit 1; }
fi
rm -f "$log"
