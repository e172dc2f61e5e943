"""Tables on disk: CSV, TSV, Excel, Parquet and NPZ files to numbers, and answers back to CSV."""
