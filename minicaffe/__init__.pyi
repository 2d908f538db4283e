"""The public names for type checkers: __init__.py imports them when they are first used."""

from minicaffe import caffe as caffe
from minicaffe import deploy as deploy
from minicaffe import export as export
from minicaffe.deploy import Classifier as Classifier
from minicaffe.deploy import Detector as Detector
from minicaffe.deploy import predict as predict
from minicaffe.errors import CheckpointError as CheckpointError
from minicaffe.errors import DataError as DataError
from minicaffe.errors import DeviceError as DeviceError
from minicaffe.errors import MinicaffeError as MinicaffeError
from minicaffe.errors import ShapeError as ShapeError
from minicaffe.errors import SpecError as SpecError
from minicaffe.errors import TrainingError as TrainingError
from minicaffe.gradient_check import GradientError as GradientError
from minicaffe.gradient_check import gradcheck as gradcheck
from minicaffe.inspect import drawing as drawing
from minicaffe.layers import Blob as Blob
from minicaffe.layers import Layer as Layer
from minicaffe.layers import Param as Param
from minicaffe.layers import Traits as Traits
from minicaffe.layers import register as register
from minicaffe.net import Net as Net
from minicaffe.net import parse as parse
from minicaffe.net import read as read
from minicaffe.ops.conv import Engine as Engine
from minicaffe.ops.conv import register_engine as register_engine
from minicaffe.ops.unroll import col2im as col2im
from minicaffe.ops.unroll import im2col as im2col
from minicaffe.own_data import Adapted as Adapted
from minicaffe.own_data import adapt as adapt
from minicaffe.solver import Solver as Solver
from minicaffe.solver.rules import Rule as Rule
from minicaffe.solver.rules import register_rule as register_rule

__version__: str
