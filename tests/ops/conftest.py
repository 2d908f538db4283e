"""--long, for the tests of the ops."""

from ops import cases


def pytest_configure(config):
    cases.LONG = config.getoption("--long")
