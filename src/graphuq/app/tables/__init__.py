"""CSV, TSV, Excel, Parquet and NPZ files in; numbers out; and predictions back to CSV."""
