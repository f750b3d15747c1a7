"""The driver of the fabric that a server's options name: NMX-M, Redfish, a package's, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from podwright import plugins
from podwright.agents import FabricDriver, FabricSite
from podwright.errors import InvalidRequest


@dataclass(frozen=True)
class FabricOptions:
    """The options of a fabric.

    product: `NMX-M`, `Redfish`, or the name of a driver that a package adds. url: its address.
    login_file: with the server's user there. authority_file: the certificates that are trusted.
    inventory_file: the identity of devices.
    """

    product: str
    url: str
    login_file: Path | None = None
    authority_file: Path | None = None
    inventory_file: Path | None = None


def fabric_driver(options: FabricOptions | None) -> Callable[[FabricSite], FabricDriver] | None:
    """Return a function that makes the driver, once the controller has its journal.

    Raises InvalidRequest at once for options that name a file or an address that cannot be used.
    """
    if options is None:
        return None
    if options.product not in ("NMX-M", "Redfish"):
        return _added(options.product)
    from podwright.agents.fabric import (
        COMPOSITION,
        FabricInventory,
        HttpManager,
        Nmx,
        OrderedFabric,
        Racks,
        Redfish,
        RedfishComposition,
        RedfishZones,
        read_inventory,
        read_login,
    )

    redfish = options.product == "Redfish"
    # Redfish has sessions, so the password is sent only once.
    login = read_login(options.login_file) if redfish and options.login_file else None
    manager = HttpManager(
        options.product,
        options.url,
        login=None if redfish else options.login_file,
        authority=options.authority_file,
    )
    fabric = urlsplit(options.url).path.rstrip("/")
    if redfish and "/Fabrics/" not in fabric and fabric != COMPOSITION:
        raise InvalidRequest(
            f"{options.url} names no fabric",
            operation="--redfish",
            would_work=f"https://HOST/redfish/v1/Fabrics/NAME, or https://HOST{COMPOSITION}",
        )
    path = options.inventory_file
    if path is not None:
        read_inventory(path)

    def make(site: FabricSite) -> FabricDriver:
        known = read_inventory(path, site.attributes) if path else None
        inventory = known or FabricInventory({}, site.attributes)
        if redfish:
            service = Redfish(manager, login=login)
            if fabric == COMPOSITION:
                return OrderedFabric(RedfishComposition(service, inventory), site.journal)
            return OrderedFabric(RedfishZones(service, fabric, inventory), site.journal)
        return OrderedFabric(Racks(Nmx(manager), inventory), site.journal)

    return make


def _added(name: str) -> Callable[[FabricSite], FabricDriver]:
    """Return a package's driver. Raises InvalidRequest for a name that no package adds."""
    make: Callable[[FabricSite], FabricDriver] | None = plugins.load_function(plugins.FABRICS, name)
    if make is None:
        known = ", ".join(plugins.names(plugins.FABRICS))
        raise InvalidRequest(
            f"no package adds a fabric called {name}",
            operation="--fabric",
            would_work=f"choose one of {known}" if known else "a package that adds one",
        )
    return make
