"""Quantised checkpoints: which weights a quantization_config touches, and what is stored in their place."""

from kvtax.architectures.quantization.named import named_quantization
from kvtax.architectures.quantization.reader import read_quantization
from kvtax.architectures.quantization.stored import Quantization, StoredTensor, store

__all__ = ["Quantization", "StoredTensor", "named_quantization", "read_quantization", "store"]
