"""The formulas of formulas.py as CUDA C++: each is called with values that write down what is done to them.

A kernel's file includes what is emitted by its name in EMITTED; launch.py compiles both as one source.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import FunctionType
from typing import Any

from minicaffe.backends.formulas import FORMULAS, RULES, Function

NUMBERS = 3  # that an element-wise function takes at the most
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "and": "&&", "or": "||"}
OPERATORS |= {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
WORDS = {  # what a formula may call, with a {} for each argument
    **{name: name + "({})" for name in ("exp", "expm1", "log", "log1p", "tanh", "erfc", "sqrt")},
    "abs": "{0} < 0 ? -{0} : {0}",
    "power": "pow({}, {})",
    "sign": "{0} > 0 ? 1 : {0} < 0 ? -1 : 0",
    "where": "{} ? {} : {}",
    "maximum": "{0} <= {1} ? {1} : {0}",  # a NaN is neither above nor below a bound, and stays
    "minimum": "{0} >= {1} ? {1} : {0}",
}


class Value:
    """An expression of C++."""

    def __init__(self, form: str, *args: Any):
        self.text = f"({form.format(*map(text, args))})" if args else form

    def __bool__(self) -> bool:
        raise TypeError("it branches on a value, and where(condition, a, b) does not")

    def __neg__(self) -> Value:
        return Value("-{}", self)


for _name, _sign in OPERATORS.items():
    setattr(Value, f"__{_name}__", lambda a, b, form=f"{{}} {_sign} {{}}": Value(form, a, b))
    setattr(Value, f"__r{_name}__", lambda a, b, form=f"{{}} {_sign} {{}}": Value(form, b, a))


def text(value: Any) -> str:
    """What a value, or a number, is in C++."""
    if isinstance(value, Value):
        return value.text
    if isinstance(value, (int, float)):
        return f"S({value})"
    raise TypeError(f"{value!r} is neither a value nor a number")


def emitted(formula: Function, names: Iterable[str]) -> list[str]:
    """The values that a formula returns, of variables with these names. Raises TypeError for what has no C++.

    >>> emitted(lambda x, low: where(x > 0.0, x, low * x), ["x", "low"])
    ['((x > S(0.0)) ? x : (low * x))']
    """
    words: dict[str, Any] = {name: partial(Value, form) for name, form in WORDS.items()}
    try:
        results = FunctionType(formula.__code__, words | {"__builtins__": {}})(*map(Value, names))
        return [text(one) for one in (results if type(results) is tuple else (results,))]
    except (AttributeError, IndexError, NameError, TypeError) as error:
        problem = f"{error}; it may call {', '.join(WORDS)}"
        raise TypeError(f"the formula {formula.__name__} has no CUDA: {problem}") from error


def functions() -> str:
    """A struct for each element-wise function: y_of(x, three numbers) and slope(x, y, three numbers)."""
    code = ""
    for name, row in FORMULAS.items():
        y, slope = row.y, row.slope or (lambda x, y: 0.0)
        code += _struct(name, _method("y_of", y, 1), _method("slope", slope, 2))
    return code


def rules() -> str:
    """A struct for each update rule: its step, which also brings the `history` of an entry up to date."""
    code = ""
    for name, (formula, memory) in RULES.items():
        count = len(parameters(formula)) - 2 - memory
        past, settings = [f"h{k}" for k in range(memory)], [f"n{k}" for k in range(count)]
        step, *history = emitted(formula, ["w", "g", *past, *settings])
        lines = [f"const S {name} = history[{k}];" for k, name in enumerate(past)]
        lines += [f"const S {name} = S(numbers[{k}]);" for k, name in enumerate(settings)]
        lines += [f"history[{k}] = {value};" for k, value in enumerate(history)]
        head = "step(S w, S g, S* history, const double* numbers)"
        body = _function(head, *lines, f"return {step};")
        code += _struct(name, f"  static const int memory = {memory};\n", body)
    return code


def parameters(formula: Function) -> tuple[str, ...]:
    """The names of a formula's parameters."""
    return formula.__code__.co_varnames[: formula.__code__.co_argcount]


def _method(name: str, formula: Function, arrays: int) -> str:
    names = parameters(formula)
    (result,) = emitted(formula, names)
    unnamed = ["S"] * (arrays + NUMBERS - len(names))
    head = ", ".join([*(f"S {name}" for name in names), *unnamed])
    return _function(f"{name}({head})", f"return S({result});")


def _function(head: str, *lines: str) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"  template <typename S>\n  static __device__ S {head} {{\n{body}  }}\n"


def _struct(name: str, *members: str) -> str:
    return f"struct {name} {{\n{''.join(members)}}};\n"


EMITTED = {"functions of formulas.py": functions, "rules of formulas.py": rules}
