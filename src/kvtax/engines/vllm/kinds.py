"""The kinds of case by which residuals of real vLLM starts are gathered: what makes a prediction more or less certain."""

from __future__ import annotations

from kvtax.architectures.cache import FullAttention, MultiHeadLatent
from kvtax.engines.answer import Question
from kvtax.engines.base import Version

FIRST_V1 = (0, 8)


def kind(question: Question, version: Version) -> str:
    """The kind of a case: the first that applies, the least certain first.

    Unified memory (what the system leaves differs from boot to boot); AMD cards (builds differ); the V0 engine; towers that are profiled;
    weights of 4 bit from a config alone (recipes differ in what they leave out); several kinds of cache; plain.
    """
    architecture = question.architecture
    if question.gpu.unified_memory:
        return "unified memory"
    if question.gpu.vendor == "AMD":
        return "AMD"
    if version < FIRST_V1:
        return "before 0.8"
    if any(tensor.component in ("vision", "audio") and tensor.loaded for tensor in architecture.tensors):
        return "towers"
    bits = getattr(architecture.quantization, "bits", None) or 16
    if bits < 8 and question.deployment.weights_bytes is None:
        return "4-bit weights"
    growing = all(isinstance(cache, (FullAttention, MultiHeadLatent)) for cache in architecture.caches)
    return "plain" if growing else "windows or state"
