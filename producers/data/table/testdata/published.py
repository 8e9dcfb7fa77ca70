"""Prints the rows of a Parquet file as PyArrow reads them, as JSON."""

import json
import sys

import pyarrow.parquet

json.dump(pyarrow.parquet.read_table(sys.argv[1]).to_pylist(), sys.stdout)
