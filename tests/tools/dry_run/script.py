"""What scripts do with caffe.Net and a solver, on CuPy's arrays: each call is taken, no number is right."""

import numpy as np

import minicaffe.interop.pycaffe as caffe
from minicaffe.backends.device import Device
from minicaffe.interop.caffe import parse
from minicaffe.interop.pycaffe import mode

NET = """
force_backward: true
input: "x" input_shape { dim: 2 dim: 3 }
layer { name: "soft" type: "Sigmoid" bottom: "x" top: "y" }
layer { name: "twice" type: "Power" bottom: "y" top: "y" power_param { scale: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "y" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 0.5 }
"""
SOLVER = f"base_lr: 0.1 max_iter: 9 test_iter: 1 test_interval: 1 net_param {{ {NET} }}"


def script(device: Device) -> list[str]:
    """What is wrong: arrays that are not NumPy's, of another shape than the blob's or the same as another's."""
    mode.device_name = lambda: device
    mode.init_log(mode.ERROR)
    net, other = (caffe.Net(parse(NET), caffe.TEST) for _ in range(2))
    net.blobs["x"].data[...] = 3
    net.params["ip"][0].data[...] = 2
    net.forward(blobs=["y"])
    net.backward(diffs=["ip"])
    net.blobs["x"].reshape(4, 3)
    net.forward(x=np.ones((4, 3)))
    net.blobs["loss"].diff[...] = 3
    net.backward()
    net.clear_param_diffs()
    other.share_with(net)
    other.forward(start="twice", end="ip")
    solver = caffe.get_solver_from_string(SOLVER)
    solver.add_callback(lambda: None, lambda: solver.net.params["ip"][0].diff.fill(1))
    solver.net.after_forward(lambda layer: solver.net.blobs["y"].data)
    solver.step(2)
    solver.apply_update()
    wrong = []
    for one in (net, other, solver.net, *solver.test_nets):
        blobs = [*one.blobs.items(), ("weight", one.params["ip"][0]), ("bias", one.params["ip"][1])]
        for name, blob in blobs:
            arrays = blob.data, blob.diff
            if not all(type(array) is np.ndarray and array.shape == blob.shape for array in arrays):
                wrong.append(f"{name}: {arrays}")
            if np.shares_memory(*arrays):
                wrong.append(f"{name}: data and diff are one")
    return wrong
