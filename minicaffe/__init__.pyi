"""The public names for type checkers: __init__.py imports them when they are first used."""

from minicaffe.core.gradient_check import GradientError as GradientError
from minicaffe.core.gradient_check import gradcheck as gradcheck
from minicaffe.core.layers import Blob as Blob
from minicaffe.core.layers import Layer as Layer
from minicaffe.core.layers import Param as Param
from minicaffe.core.layers import Traits as Traits
from minicaffe.core.layers import register as register
from minicaffe.core.layers.context import Numerics as Numerics
from minicaffe.core.net import Net as Net
from minicaffe.core.net import parse as parse
from minicaffe.core.net import read as read
from minicaffe.core.ops.conv import Engine as Engine
from minicaffe.core.ops.conv import register_engine as register_engine
from minicaffe.core.solver import Solver as Solver
from minicaffe.core.solver.own_rules import Rule as Rule
from minicaffe.core.solver.own_rules import register_rule as register_rule
from minicaffe.errors import CheckpointError as CheckpointError
from minicaffe.errors import DataError as DataError
from minicaffe.errors import DeviceError as DeviceError
from minicaffe.errors import MinicaffeError as MinicaffeError
from minicaffe.errors import ShapeError as ShapeError
from minicaffe.errors import SpecError as SpecError
from minicaffe.errors import TrainingError as TrainingError
from minicaffe.interop import caffe as caffe
from minicaffe.interop import pycaffe as pycaffe
from minicaffe.interop.onnx import writer as export  # noqa: F401
from minicaffe.tools import deploy as deploy
from minicaffe.tools import parallel as parallel
from minicaffe.tools.deploy import Classifier as Classifier
from minicaffe.tools.deploy import Detector as Detector
from minicaffe.tools.deploy import predict as predict
from minicaffe.tools.im2col import col2im as col2im
from minicaffe.tools.im2col import im2col as im2col
from minicaffe.tools.own_data import Adapted as Adapted
from minicaffe.tools.own_data import adapt as adapt
from minicaffe.tools.visualize import drawing as drawing

__version__: str
