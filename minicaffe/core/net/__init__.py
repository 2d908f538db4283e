"""Nets: the built graph of layers, its memory, its weights, and running it."""

from minicaffe.core.net.model import parse, read
from minicaffe.core.net.net import Net

__all__ = ["Net", "parse", "read"]
