"""The layers that read data: files, data sets, arrays in memory; and how batches are made ahead of a pass."""

import minicaffe.core.layers  # noqa: F401  (it imports the layers here: whichever file is asked for first)
