"""The driver of the fabric that a server's options name: NMX-M, Redfish, a package's, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from podwright.agents import FabricDriver, FabricSite
from podwright.errors import InvalidRequest
from podwright.ground import plugins


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


def fabric_driver(
    fabric_options: FabricOptions | None,
) -> Callable[[FabricSite], FabricDriver] | None:
    """Return a function that makes the driver, once the controller has its journal.

    Raises InvalidRequest at once for options that name a file or an address that cannot be used.
    """
    if fabric_options is None:
        return None
    if fabric_options.product not in ("NMX-M", "Redfish"):
        return _package_driver(fabric_options)
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

    is_redfish = fabric_options.product == "Redfish"
    # Redfish has sessions, so the password is sent only once.
    redfish_login = (
        read_login(fabric_options.login_file) if is_redfish and fabric_options.login_file else None
    )
    http_manager = HttpManager(
        fabric_options.product,
        fabric_options.url,
        login_file=None if is_redfish else fabric_options.login_file,
        authority_file=fabric_options.authority_file,
    )
    fabric_path = urlsplit(fabric_options.url).path.rstrip("/")
    if is_redfish and "/Fabrics/" not in fabric_path and fabric_path != COMPOSITION:
        raise InvalidRequest(
            f"{fabric_options.url} names no fabric",
            operation="--redfish",
            would_work=f"https://HOST/redfish/v1/Fabrics/NAME, or https://HOST{COMPOSITION}",
        )
    inventory_path = fabric_options.inventory_file
    if inventory_path is not None:
        read_inventory(inventory_path)

    def make(fabric_site: FabricSite) -> FabricDriver:
        given_inventory = (
            read_inventory(inventory_path, fabric_site.attributes) if inventory_path else None
        )
        inventory = given_inventory or FabricInventory({}, fabric_site.attributes)
        if is_redfish:
            redfish_service = Redfish(
                http_manager, login=redfish_login, changed=fabric_site.changed
            )
            if fabric_path == COMPOSITION:
                return OrderedFabric(
                    RedfishComposition(redfish_service, inventory), fabric_site.journal
                )
            return OrderedFabric(
                RedfishZones(redfish_service, fabric_path, inventory), fabric_site.journal
            )
        return OrderedFabric(Racks(Nmx(http_manager), inventory), fabric_site.journal)

    return make


def _package_driver(fabric_options: FabricOptions) -> Callable[[FabricSite], FabricDriver]:
    """Return a package's driver. Raises InvalidRequest for a name that no package adds."""
    make_driver: Callable[[FabricSite], FabricDriver] | None = plugins.load_function(
        plugins.FABRICS, fabric_options.product
    )
    if make_driver is None:
        names = ", ".join(plugins.names(plugins.FABRICS))
        raise InvalidRequest(
            f"no package adds a fabric called {fabric_options.product}",
            operation="--fabric",
            would_work=f"choose one of {names}" if names else "a package that adds one",
        )
    if fabric_options.inventory_file is not None:
        from podwright.agents.fabric import read_inventory

        read_inventory(fabric_options.inventory_file)
    return lambda site: make_driver(
        site._replace(
            url=fabric_options.url,
            login_file=fabric_options.login_file,
            authority_file=fabric_options.authority_file,
            inventory_file=fabric_options.inventory_file,
        )
    )
