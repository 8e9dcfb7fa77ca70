"""Rows as a pandas frame."""

import importlib
from collections.abc import Iterable
from typing import Any, Protocol


class Row(Protocol):
    """What has a row: a record, or a trajectory."""

    def row(self) -> dict[str, Any]:
        """Its values by column."""


def frame(rows: Iterable[Row]) -> Any:
    """A pandas DataFrame of records or trajectories. Without pandas it raises ImportError."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        raise ImportError("frames need pandas, which is not installed: pip install pandas") from None
    return pandas.DataFrame([one.row() for one in rows])
