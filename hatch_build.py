"""The project's addresses, all from the one that pyproject.toml names."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Addresses(MetadataHookInterface):
    """Called by hatchling when it writes the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set project.urls."""
        repository = self.config["repository"].rstrip("/")
        metadata["urls"] = {
            "Homepage": repository,
            "Documentation": f"{repository}/tree/main/docs",
            "Source": repository,
            "Issues": f"{repository}/issues",
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            "Security": f"{repository}/blob/main/SECURITY.md",
        }
