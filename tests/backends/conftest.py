"""The forms of an op and the number of threads, as the tests of ops have them."""

from core.ops.conftest import (  # noqa: F401
    crew,
    device,
    engines,
    pytest_collection_modifyitems,
    pytest_configure,
    threads,
)
