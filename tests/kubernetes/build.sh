#!/bin/bash
# The binaries of the Kubernetes lab, made once a machine: Kubernetes 1.20.2 out of Debian 12's own
# source package, built with Debian's Go, beside Debian's etcd, containerd, runc and busybox.
# Prints the folder that holds them. About six minutes on two cores; a second call takes none.
#
# Nothing is installed but what unpacks a source package, and the machine's apt sources stay as they
# are: the lists, archives and unpacked packages lie in a folder of ours that goes when it is done.
set -euo pipefail

cache=${PODWRIGHT_LAB_CACHE:-/var/cache/podwright-lab}
tools=(golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev)
parts=(etcd-server containerd runc containernetworking-plugins busybox-static)
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl)
version=1.20.2
# One more where what follows comes to make other binaries.
recipe=1

mkdir -p "$cache"
out=$cache/kubernetes-$version-$recipe
exec 9>"$cache/kubernetes.lock"
flock 9
if [ -e "$out/.complete" ]; then
    echo "$out"
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "The Kubernetes lab needs root: run this as root." >&2
    exit 1
fi
if ! . /etc/os-release || [ "${VERSION_CODENAME:-}" != bookworm ]; then
    echo "The Kubernetes lab builds on Debian 12 alone; elsewhere set PODWRIGHT_KUBE_BIN." >&2
    exit 1
fi

rm -rf "$cache"/.kubernetes-* # of one that was killed: only one builds at a time
work=$(mktemp -d "$cache/.kubernetes-XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
log=$work/log
fail() {
    tail -n 40 "$log" >&2
    echo "Building Kubernetes for the lab: $1" >&2
    exit 1
}
say() { echo "Kubernetes lab: $*" >&2; }

# Debian's mirror as the machine names it, with its sources, in lists of our own.
mirror=$(awk '/^URIs:|^deb[ \t]/ { for (i = 2; i <= NF; i++) if ($i ~ /\/debian\/?$/) { print $i; exit } }' \
    $(ls /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null))
[ -n "$mirror" ] || { echo "No mirror of Debian in this machine's apt sources." >&2; exit 1; }
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$work"/apt/{lists,cache,source}/partial "$work"/{debs,root,go/src/k8s.io,made}
{
    echo "deb [signed-by=$keys] $mirror bookworm main"
    echo "deb-src [signed-by=$keys] $mirror bookworm main"
} >"$work/apt/sources.list"
apt=(apt-get -qq -o Acquire::Retries=3 -o APT::Sandbox::User=root
    -o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=-
    -o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache")

say "fetching sources and Debian's packages"
"${apt[@]}" update >>"$log" 2>&1 || fail "apt-get update"
# From the machine's own sources: its perl-base may be of the security suite, and perl must match it.
unpackers() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 \
        -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1
}
if ! command -v dpkg-source >/dev/null || ! command -v patch >/dev/null; then
    unpackers install -y --no-install-recommends dpkg-dev patch xz-utils || {
        unpackers update || true # of others' sources some may be away
        unpackers install -y --no-install-recommends dpkg-dev patch xz-utils || fail "dpkg-dev"
    }
fi
(cd "$work/debs" && "${apt[@]}" download "${tools[@]}" "${parts[@]}") >>"$log" 2>&1 || fail "packages"
for deb in "$work"/debs/*.deb; do
    dpkg -x "$deb" "$work/root"
done
(cd "$work/go/src/k8s.io" && "${apt[@]}" source kubernetes) >>"$log" 2>&1 || fail "its source"
cd "$work/go/src/k8s.io"
mv kubernetes-*/ kubernetes
cd kubernetes

# Under Go 1.19 the reflect2 in its vendor folder ends the API server at the first PATCH of a node's
# status; Debian's own package has the one that does not.
reflect2=vendor/github.com/modern-go/reflect2
rm -f $reflect2/*.go $reflect2/*.s
cp "$work/root/usr/share/gocode/src/github.com/modern-go/reflect2/"*.{go,s} $reflect2/
rm -f $reflect2/*_test.go

export GOROOT=$work/root/usr/lib/go-1.19 GOPATH=$work/go GOCACHE=$work/cache GOTMPDIR=$work/made
export GO111MODULE=off GOPROXY=off GOFLAGS="" CGO_ENABLED=0 PATH=$work/root/usr/lib/go-1.19/bin:$PATH

# What the API server says of its own types is generated, and the source package leaves it out: from
# all packages that ask for it, but the generator's own.
openapi=pkg/generated/openapi/zz_generated.openapi.go
if [ ! -s $openapi ]; then
    say "generating what its API says of itself"
    go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen >>"$log" 2>&1 || fail openapi-gen
    asking=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg vendor/k8s.io/ staging/src/k8s.io/ 2>/dev/null |
        xargs -n1 dirname | sed -e 's,^staging/src/,vendor/,' | sort -u | grep -v /kube-openapi/ |
        sed -e 's,^,k8s.io/kubernetes/,' | paste -sd,)
    "$work/openapi-gen" -i "$asking" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
        -h hack/boilerplate/boilerplate.generatego.txt -r "$work/openapi-report" >>"$log" 2>&1 || fail openapi-gen
fi

flags="-s -w"
for package in vendor/k8s.io/client-go/pkg/version vendor/k8s.io/component-base/version; do
    flags+=" -X k8s.io/kubernetes/$package.gitVersion=v$version -X k8s.io/kubernetes/$package.gitMajor=1"
    flags+=" -X k8s.io/kubernetes/$package.gitMinor=20 -X k8s.io/kubernetes/$package.gitTreeState=clean"
done
bin=$work/bin
mkdir -p "$bin/cni"
for program in "${programs[@]}"; do
    say "building $program"
    go build -trimpath -tags providerless -ldflags "$flags" -o "$bin/" "./cmd/$program" >>"$log" 2>&1 || fail "$program"
done
cd "$work/root"
cp usr/bin/etcd usr/bin/containerd usr/bin/containerd-shim-runc-v2 usr/bin/ctr usr/sbin/runc bin/busybox "$bin/"
cp usr/lib/cni/{bridge,host-local,loopback,portmap} "$bin/cni/"
rm -rf "$out"
mv "$bin" "$out"
touch "$out/.complete"
echo "$out"
