"""The dry run: minicaffe on the arrays of the real CuPy, without a GPU.

Arrays are `cupy.ndarray` at addresses made up, so their views, shapes and strides are CuPy's own. What
would be asked of the device is checked and written down instead:

    memory.py        what is allocated; copies to, from and on the device
    elementwise.py   CuPy chooses the types, and says which operands it would copy
    reductions.py    sums, maxima: what of them CUB takes, in memory of its own
    products.py      each product by cuBLAS lies within its arrays
    kernels.py       each launch has the arguments, of the types, that the kernel's source declares
    record.py        the operations, what is wrong with them, and how two steps differ

Whatever is not modelled here reaches CuPy itself, which fails for want of a GPU: nothing passes unseen.
`python -m dry_run` (with this folder's parent on PYTHONPATH) walks the nets of cases.py.
"""
