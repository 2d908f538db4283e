"""pytest looks for no tests in here: it is walked by test_dry_run.py, in a process of its own."""

collect_ignore_glob = ["*.py"]
