"""The options of `vipu-admin`, beside those of `vipu`."""

from __future__ import annotations

from podwright.cli.shared._noun_grammar import NamedOptions
from podwright.cli.shared._server_options import JsonEverywhere
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import not_negative, number, port, positive

_CHANGE_NOTHING = opt.flag("say what would be, no more")


class AgentOptions(NamedOptions):
    """`vipu-admin create agent`."""

    host = opt.text("its address; as it announced it", "H")
    port = opt.value("its port, 8080", "P", port, 8080)
    replace = opt.flag("it has another address, hardware or certificate from now on")
    certificate = opt.text(
        "with TLS: believe the certificate of this number alone, which create printed", "N"
    )


class ClusterOptions(NamedOptions):
    """`vipu-admin create cluster`."""

    agents = opt.text("in the order of their links", "A,B,…")
    num_ipulinkdomains = opt.value("link domains, 1", "N", positive, 1)
    topology = opt.text("inside a link domain: mesh, torus", "T")
    cluster_topology = opt.text("between them: looped, switched, none", "T")


class AllocationOptions(NamedOptions):
    """`vipu-admin create allocation`."""

    cluster = opt.text("the cluster", "C")
    agents = opt.text("these machines", "A,B,…")
    size = opt.value("so many devices", "N", not_negative, 0)
    users = opt.text("who may use it", "A,B,…")
    scheduler = opt.text("the user of that role who alone creates in it", "USER")


class UserOptions(NamedOptions):
    """`vipu-admin create user`."""

    allocations = opt.text("those the user may use; all", "A,B,…")
    role = opt.text("administrator, user, reader, scheduler", "R", "user")
    uid = opt.text(
        "the account that is this user without a key: a number, or its name on this machine", "ID"
    )


class CertificateOptions(NamedOptions):
    """`vipu-admin create certificate`."""

    tls_ca = opt.text(
        "the authority: what vipu-server --tls-init made; vipu-certs", "DIR", "vipu-certs"
    )
    renew = opt.flag("in the place of the one that is there")
    agent = opt.flag("NAME is a machine, and this its agent's")
    host = opt.text("names and addresses of the agent's host", "A,B,…")
    days = opt.value("how long it is good for, 365", "N", positive, 365)


class RemoveClusterOptions(NamedOptions):
    """`vipu-admin remove cluster`."""

    force = opt.flag("with the allocations in it")


class RevokeOptions(NamedOptions):
    """`vipu-admin revoke certificate`."""

    number = opt.text("as it was made with", "N", required=True)


class DrainOptions(NamedOptions):
    """`vipu-admin drain machine`."""

    reason = opt.text("why, for everybody who sees that it is drained", "TEXT")
    dry_run = opt.flag("say what that would mean, no more")


class AddMachineOptions(NamedOptions):
    """`vipu-admin add machine`."""

    cluster = opt.text("the cluster", "C", required=True)
    link_domain = opt.text("the one they join, or a new one's name", "D")
    dry_run = _CHANGE_NOTHING


class ReplaceMachineOptions(NamedOptions):
    """`vipu-admin replace machine`."""

    by = opt.text("a registered agent", "AGENT", required=True)
    dry_run = _CHANGE_NOTHING


class QuotaOptions(JsonEverywhere):
    """`vipu-admin remove quota`."""

    user = opt.text("of this user, in all allocations together", "U")
    allocation = opt.text("of all in this one; with --user: of that", "A")


class SetQuotaOptions(QuotaOptions):
    """`vipu-admin set quota`."""

    devices = opt.value("devices; without it, no limit", "N", not_negative, None)
    partitions = opt.value("partitions; else no limit", "N", not_negative, None)


class ShareOptions(JsonEverywhere):
    """`vipu-admin remove share`."""

    guest = opt.text(
        "slurm, 'kubernetes NAME' or people; list shares shows all", "G", required=True
    )


class SetShareOptions(ShareOptions):
    """`vipu-admin set share`."""

    weight = opt.value("from 0.01 to 1000", "N", number, 0.0, required=True)


class MovesOptions(JsonEverywhere):
    """`vipu-admin moves`."""

    never = opt.flag("ask nobody from now on; it is kept", rivals="permission")
    allow = opt.flag("ask those who can move, as at first", rivals="permission")
    dry_run = opt.flag("change nothing, only show")


class BackupOptions(JsonEverywhere):
    """`vipu-admin backup store`."""

    name = opt.argument("the file; one that is there is replaced", "FILE")


class AuditOptions(JsonEverywhere):
    """`vipu-admin audit verify`."""

    head = opt.several(
        "an entry that must still be there, as the server's log has it each hour; may be given "
        "several times",
        "HEAD",
        str,
    )
