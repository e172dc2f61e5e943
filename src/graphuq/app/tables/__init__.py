"""Tables on disk: CSV, TSV, Excel, Parquet and NPZ files to numbers, and answers back to CSV."""

from graphuq.app.tables.encode import Encoding, Feature, fit_encoding, scaling_in_words
from graphuq.app.tables.read import Table, read_table
from graphuq.app.tables.text import Marks
from graphuq.app.tables.write import beside, write_csv

__all__ = [
    "Encoding",
    "Feature",
    "Marks",
    "Table",
    "beside",
    "fit_encoding",
    "read_table",
    "scaling_in_words",
    "write_csv",
]
