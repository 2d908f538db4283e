"""What bears the mark quick: something of every room, in less than a minute on two cores."""

QUICK = {  # files, and whole folders
    *("spec", "test_backend.py", "test_checkpoint.py", "test_deploy.py", "test_standin.py"),
    *(
        "caffe/test_prototxt.py",
        "data/test_datasets.py",
        "data/test_readers.py",
        "drawing/test_layout.py",
    ),
    *("cli/test_filled.py", "cli/test_progress.py", "export/test_check.py", "pycaffe/test_net.py"),
    *("layers/test_channels.py", "layers/test_convolution.py", "layers/test_layer_contract.py"),
    *(
        "layers/test_losses.py",
        "layers/test_shape.py",
        "report/test_page.py",
        "test_layers_page.py",
    ),
    *("net/test_copies.py", "net/test_given.py", "net/test_graph.py", "net/test_net.py"),
    *("ops/test_arrays.py", "ops/test_emit.py", "ops/test_geometry.py", "ops/test_linear.py"),
    *(
        "ops/test_own_engine.py",
        "ops/test_places.py",
        "ops/test_threads.py",
        "parallel/test_shares.py",
    ),
    *("solver/test_changes.py", "solver/test_engine.py", "solver/test_own_rule.py"),
    *("solver/test_policies.py", "solver/test_replay.py", "solver/test_rules.py"),
    *("solver/test_run_folder.py",),
}
