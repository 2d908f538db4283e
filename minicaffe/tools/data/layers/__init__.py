"""The layers that read data: files, data sets, arrays in memory; and how batches are made ahead of a pass."""
