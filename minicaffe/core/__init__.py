"""What minicaffe is: a model becomes a net, which a solver trains; read docs/read-me-first.md."""
