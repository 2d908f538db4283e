"""What bears the mark quick: something of every room, in less than a minute on two cores."""

QUICK = {  # files, and whole folders
    *(
        "core/config",
        "backends/test_backend.py",
        "storage/test_checkpoint.py",
        "tools/test_deploy.py",
        "test_standin.py",
    ),
    *(
        "interop/caffe/test_prototxt.py",
        "tools/data/test_datasets.py",
        "tools/data/test_readers.py",
        "tools/visualize/test_layout.py",
    ),
    *(
        "cli/test_filled.py",
        "cli/test_progress.py",
        "interop/onnx/writer/test_check.py",
        "interop/pycaffe/test_net.py",
    ),
    *(
        "core/layers/test_channels.py",
        "core/layers/test_convolution.py",
        "core/layers/test_layer_contract.py",
    ),
    *(
        "core/layers/test_losses.py",
        "core/layers/test_shape.py",
        "tools/report/test_page.py",
        "test_layers_page.py",
    ),
    *(
        "core/net/test_copies.py",
        "core/net/test_given.py",
        "core/net/test_graph.py",
        "core/net/test_net.py",
    ),
    *(
        "core/ops/test_arrays.py",
        "core/ops/test_emit.py",
        "core/ops/test_geometry.py",
        "core/ops/test_linear.py",
    ),
    *(
        "core/ops/test_own_engine.py",
        "core/ops/test_places.py",
        "core/ops/test_threads.py",
        "tools/parallel/test_shares.py",
    ),
    *("core/solver/test_changes.py", "core/solver/test_engine.py", "core/solver/test_own_rule.py"),
    *("core/solver/test_policies.py", "core/solver/test_replay.py", "core/solver/test_rules.py"),
    *("core/solver/test_run_folder.py",),
}
