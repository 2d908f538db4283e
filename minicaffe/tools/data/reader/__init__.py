"""Data sets entry by entry: one interface (base.py), and a file for each kind that minicaffe reads."""
