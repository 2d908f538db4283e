"""YAML text to frozen dataclasses; every mistake named with file:line:column."""
