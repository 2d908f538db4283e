"""A run as one page: report.html, which needs no network and opens from disk."""

from minicaffe.tools.report.make import data_of, write

__all__ = ["data_of", "write"]
