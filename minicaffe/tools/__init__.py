"""What a person needs around a net: data, runs, ranks, pictures of nets, reports, deployment."""
