"""The ledger: exact bytes up and down."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Ledger:
    """Bytes of one download and one upload, and what has travelled so far."""

    bytes_per_download: int
    bytes_per_upload: int
    down: int = 0
    up: int = 0

    def count(self, downloads: int, uploads: int) -> None:
        """Add the messages of a step: who drops out or has no data downloads but never uploads."""
        self.down += downloads * self.bytes_per_download
        self.up += uploads * self.bytes_per_upload
