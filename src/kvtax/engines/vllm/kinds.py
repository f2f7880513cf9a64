"""The kinds of case by which residuals of real vLLM starts are gathered: what makes a prediction more or less certain."""

from __future__ import annotations

from kvtax.architectures.cache import FullAttention, MultiHeadLatent
from kvtax.engines.answer import Question
from kvtax.engines.base import Version
from kvtax.engines.vllm.rules import FIRST_V1

DATACENTER = "datacenter"


def kind(question: Question, version: Version) -> str:
    """The kind of a case: the first that applies, the least certain first.

    Unified memory (what the system leaves differs from boot to boot); the V0 engine; weights of 4 bit from a config alone (recipes differ in
    what they leave out), the more so with windows or recurrent state; AMD cards (builds differ); cards of workstations and consumers, whose
    totals and other users differ more than those of datacentres.
    """
    architecture, gpu = question.architecture, question.gpu
    if gpu.unified_memory:
        return "unified memory"
    if version < FIRST_V1:
        return "before 0.8"
    bits = getattr(architecture.quantization, "bits", None) or 16
    growing = all(isinstance(cache, (FullAttention, MultiHeadLatent)) for cache in architecture.caches)
    if bits < 8 and question.deployment.weights_bytes is None:
        return "4-bit weights" if growing else "4-bit weights, windows or state"
    if gpu.vendor == "AMD":
        return "AMD, datacenter card" if gpu.kind == DATACENTER else "AMD, other card"
    return "datacenter card" if gpu.kind == DATACENTER else "other card"
