"""transformers' generate: a cache that grows by copying, or one that is allocated whole; no budget of its own."""
