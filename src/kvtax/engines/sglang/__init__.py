"""SGLang: one share of the memory free before loading for weights and caches, without a profile."""
