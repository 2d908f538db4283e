"""Data sets: the IDX format, fetching, finding, and the drawn digits."""
