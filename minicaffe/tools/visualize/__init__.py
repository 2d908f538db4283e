"""Nets looked at from outside: pictures, ranges of what they hold, times of layers."""
