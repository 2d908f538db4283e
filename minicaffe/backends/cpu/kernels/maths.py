"""exp, log and their kin out of additions and multiplications, so that loops take eight or sixteen at a time.

They are right to a few units in the last place. Sources: S. Moshier's Cephes (exp), Sun's fdlibm (log).
"""

import functools
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from minicaffe.backends.formulas import typed

FRACTION = np.int64((1 << 52) - 1)  # the bits of a float64 behind its exponent
ROOT = np.int64(0x6A09E667F3BCD)  # those of sqrt(2)


def split32(x: Any) -> Any:
    """exp(x) = (1 + q) a b, with q = exp(r) - 1 of a small r, and powers of two a and b; float32."""
    x = 90.0 if x > 90.0 else x  # a NaN stays one
    x = -105.0 if x < -105.0 else x
    shifted = np.float32(x * 1.44269504088896341 + 12582912.0)  # of 1.5 2^23 the low bits count
    k = shifted.view(np.int32) - np.int32(0x4B400000)
    whole = shifted - 12582912.0
    r = x - whole * 0.693359375 - whole * -2.12194440e-4
    p = ((1.9875691500e-4 * r + 1.3981999507e-3) * r + 8.3334519073e-3) * r + 4.1665795894e-2
    p = (p * r + 1.6666665459e-1) * r + 5.0000001201e-1
    half = np.int32(k >> np.int32(1))
    a = np.int32((half + np.int32(127)) << np.int32(23)).view(np.float32)
    b = np.int32((np.int32(k - half) + np.int32(127)) << np.int32(23)).view(np.float32)
    return p * (r * r) + r, a, b


def split64(x: Any) -> Any:
    """The same of float64."""
    x = 720.0 if x > 720.0 else x
    x = -750.0 if x < -750.0 else x
    shifted = np.float64(x * 1.4426950408889634073599 + 6755399441055744.0)  # 1.5 2^52
    k = shifted.view(np.int64) - np.int64(0x4338000000000000)
    whole = shifted - 6755399441055744.0
    r = x - whole * 6.93145751953125e-1 - whole * 1.42860682030941723212e-6
    rr = r * r
    p = (1.26177193074810590878e-4 * rr + 3.02994407707441961300e-2) * rr
    p = r * (p + 9.99999999999999999910e-1)
    q = 3.00198505138664455042e-6 * rr + 2.52448340349684104192e-3
    q = (q * rr + 2.27265548208155028766e-1) * rr + 2.0
    half = k >> np.int64(1)
    a = np.int64((half + np.int64(1023)) << np.int64(52)).view(np.float64)
    b = np.int64((k - half + np.int64(1023)) << np.int64(52)).view(np.float64)
    return 2.0 * p / (q - p), a, b


def exp(x: Any) -> Any:
    """e^x."""
    q, a, b = split(x)  # type: ignore[name-defined]  # noqa: F821
    return (1.0 + q) * a * b


def expm1(x: Any) -> Any:
    """e^x - 1; where that is infinite b is, too."""
    q, a, b = split(x)  # type: ignore[name-defined]  # noqa: F821
    return q * a * b + (a * b - 1.0) if x < 88.0 else (1.0 + q) * a * b


def tanh(x: Any) -> Any:
    """(e^2x - 1) / (e^2x + 1)."""
    size = 22.0 if abs(x) > 22.0 else abs(x)
    q, a, b = split(2.0 * size)  # type: ignore[name-defined]  # noqa: F821
    more = q * a * b + (a * b - 1.0)
    return math.copysign(more / (more + 2.0), x)


def log64(x: Any) -> Any:
    """The natural logarithm; NaN below 0."""
    tiny = x < 2.2250738585072014e-308
    bits = np.float64(x * 18014398509481984.0 if tiny else x).view(np.int64)
    up = np.int64(1) if (bits & FRACTION) > ROOT else np.int64(0)
    k = (bits >> np.int64(52)) - np.int64(1023) + up
    f = np.int64((bits & FRACTION) | ((np.int64(1023) - up) << np.int64(52))).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (0.3999999999940941908 + w * (0.2222219843214978396 + w * 0.1531383769920937332))
    odd = w * (0.2857142874366239149 + w * (0.1818357216161805012 + w * 0.1479819860511658591))
    odd = z * (0.6666666666666735130 + odd)
    half, e = 0.5 * f * f, float(k) - (54.0 if tiny else 0.0)
    log = s * (half + even + odd) + e * 1.90821492927058770002e-10
    log = e * 6.93147180369123816490e-01 - ((half - log) - f)
    log = -np.inf if x == 0.0 else log
    log = x if x == np.inf else log
    return np.nan if not x >= 0.0 else log


def log1p64(x: Any) -> Any:
    """The logarithm of 1 + x, also of a small x."""
    u = 1.0 + x
    return log64(u) + ((x - (u - 1.0)) / u if u > 0.0 and u < np.inf else 0.0)


def power64(x: Any, p: Any) -> Any:
    """x^p, but for float64 itself, of which the logarithm has too few places; NaN of x < 0 and a broken p."""
    size = exp(p * log64(abs(x)))
    whole = math.floor(p) == p
    odd = whole and math.floor(p * 0.5) * 2.0 != p
    size = math.copysign(size, x) if odd else (np.nan if x < 0.0 and not whole else size)
    return 1.0 if p == 0.0 else size


def inlined(function: Callable[..., Any]) -> Any:
    """Compiled into whatever calls it, products and sums as one: around a call no vectors are made."""
    from minicaffe.backends.cpu.compiler import part

    return part(function, error_model="numpy", forceinline=True, fastmath={"contract"})


@functools.cache
def words(dtype: np.dtype) -> dict[str, Callable[..., Any]]:
    """Each function for numbers of a type, by its name; those of float32 with a logarithm by float64."""
    double = np.dtype(np.float64)
    names = {"np": np, "abs": abs, "float": float, "math": math, "FRACTION": FRACTION, "ROOT": ROOT}
    log = inlined(typed(log64, double, names))
    log1p = inlined(typed(log1p64, double, names | {"log64": log}))
    own = split64 if dtype == double else split32
    with_split = names | {"split": inlined(typed(own, dtype, names))}
    functions = {f.__name__: inlined(typed(f, dtype, with_split)) for f in (exp, expm1, tanh)}
    if dtype == double:
        return functions | {"log": log, "log1p": log1p, "power": math.pow}
    known = names | {"log64": log, "exp": words(double)["exp"]}
    power = inlined(typed(power64, double, known))
    return functions | {
        "log": inlined(lambda x: np.float32(log(np.float64(x)))),
        "log1p": inlined(lambda x: np.float32(log1p(np.float64(x)))),
        "power": inlined(lambda x, p: np.float32(power(np.float64(x), np.float64(p)))),
    }


def by_type(compile_loop: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Make a loop one for each type: functions of NumPy that it calls by their names become `words` of it."""

    def decorated(function: Callable[..., Any]) -> Any:
        @functools.cache
        def loop(dtype: np.dtype) -> Any:
            meaning = {**function.__globals__, **words(dtype)}
            return compile_loop(FunctionType(function.__code__, meaning, function.__name__))

        return loop

    return decorated
