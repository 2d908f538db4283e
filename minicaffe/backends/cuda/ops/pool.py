"""Max and average pooling by CUDA kernels."""

from __future__ import annotations

from typing import Any

from minicaffe.backends.cuda.launch import launch

FILE = "pool.cu"


def max_pool(x: Any, window: Any, out: Any, which: Any, *_: Any, keep: bool = True) -> None:
    """`which` is always kept."""
    launch(FILE, "max_pool", out.size, out, x, *_sizes(x, window, out), out, which)


def max_pool_gradient(dy: Any, which: Any, window: Any, out: Any, *_: Any) -> None:
    """A thread for each pixel of the image."""
    sizes = _sizes(out, window, dy)
    launch(FILE, "max_pool_gradient", out.size, out, dy, which, *sizes, None, out)


def ave_pool(x: Any, window: Any, out: Any, *_: Any) -> None:
    """A thread for each output."""
    launch(FILE, "ave_pool", out.size, out, x, *_sizes(x, window, out), out)


def ave_pool_gradient(dy: Any, window: Any, out: Any, *_: Any) -> None:
    """A thread for each pixel of the image."""
    launch(FILE, "ave_pool_gradient", out.size, out, dy, *_sizes(out, window, dy), None, out)


def _sizes(image: Any, window: Any, pooled: Any) -> tuple[int, ...]:
    return (*image.shape[2:], *window.kernel, *window.pad, *window.stride, *pooled.shape[2:])
