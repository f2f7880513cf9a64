"""A model as a GGUF file describes it: its hyper-parameters and its tensors."""
