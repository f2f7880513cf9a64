"""TensorRT-LLM: KV takes a share of what is free after weights and a measured peak."""
