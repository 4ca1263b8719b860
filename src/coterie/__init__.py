"""Coterie: train recommenders without collecting anybody's history."""

from coterie.errors import CoterieError
from coterie.version import __version__

__all__ = ["CoterieError", "__version__"]
