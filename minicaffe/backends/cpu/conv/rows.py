"""The table of what compiled loops compute of a convolution; each file here adds its rows."""

from minicaffe.backends.cpu import for_rows
from minicaffe.backends.dispatch import Rows

ROWS = Rows(for_rows)
row = ROWS.add
