"""Nets in the layers that compilers of vision chips take, and their int8 ranges."""
