"""Tables on disk: CSV, TSV, Parquet and NPZ files to numbers, and answers back to CSV."""

from graphuq.tables.encode import Encoding, Feature, fit_encoding, scaling_in_words
from graphuq.tables.read import Table, read_table
from graphuq.tables.write import write_csv

__all__ = ["Encoding", "Feature", "Table", "fit_encoding", "read_table", "scaling_in_words", "write_csv"]
