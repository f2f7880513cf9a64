"""Where a model or a GPU comes from."""
