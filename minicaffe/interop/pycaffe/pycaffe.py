"""The names that scripts import from `caffe.pycaffe`."""

from minicaffe.interop.pycaffe import __getattr__ as __getattr__

_RULES = ("AdaDelta", "AdaGrad", "Adam", "Nesterov", "RMSProp", "SGD")
_NAMES = ("Net", "Timer", *(f"{rule}Solver" for rule in _RULES))
__all__ = list(_NAMES)
