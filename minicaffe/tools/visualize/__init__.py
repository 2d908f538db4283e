"""Nets looked at from outside: pictures, and ranges of what they hold."""
