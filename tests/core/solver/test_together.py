"""Several reports as one."""

import inspect

from minicaffe.core.solver.report import Report
from minicaffe.tools.training.progress import Together


def test_each_hears_all_that_a_solver_tells():
    heard = []

    def hearing(number, name):
        return lambda self, *given, **named: heard.append((number, name, given, named))

    names = [name for name, _ in inspect.getmembers(Report, inspect.isfunction) if name != "write"]
    kinds = [type("Kind", (Report,), {name: hearing(i, name) for name in names}) for i in (0, 1)]
    both = Together(*(kind() for kind in kinds))
    for name in names:
        wanted = inspect.signature(getattr(Report, name)).parameters.values()
        given = [object() for one in list(wanted)[1:]]
        getattr(both, name)(*given)
        assert heard == [(i, name, tuple(given), {}) for i in (0, 1)]
        heard.clear()
