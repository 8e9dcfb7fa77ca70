"""The version of the installed package."""

import importlib.metadata


def version() -> str:
    """The package's version; "0+source" where the package is read from a checkout."""
    try:
        return importlib.metadata.version("weir-rl")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"
