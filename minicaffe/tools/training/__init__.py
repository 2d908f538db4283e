"""Runs: the folder that training leaves, its record, going on from it; and the diagnosis of what diverged."""
