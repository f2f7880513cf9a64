"""The engines by name: the one place that knows where each is, and which of them understand a field."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from kvtax.architectures.architecture import Architecture
from kvtax.deployment import COMMON_FIELDS, Deployment
from kvtax.engines.answer import Question
from kvtax.engines.base import Plan
from kvtax.errors import InputError, NotKnownError

PLANS = {
    "vllm": ("kvtax.engines.vllm.plan", "VllmPlan"),
    "sglang": ("kvtax.engines.sglang.plan", "SglangPlan"),
    "tensorrt-llm": ("kvtax.engines.tensorrt_llm.plan", "TensorRtLlmPlan"),
    "tgi": ("kvtax.engines.tgi.plan", "TgiPlan"),
    "lmdeploy": ("kvtax.engines.lmdeploy.plan", "LmDeployPlan"),
    "llama.cpp": ("kvtax.engines.llama_cpp.plan", "LlamaCppPlan"),
    "ollama": ("kvtax.engines.llama_cpp.wrappers", "OllamaPlan"),
    "lm-studio": ("kvtax.engines.llama_cpp.wrappers", "LmStudioPlan"),
    "transformers": ("kvtax.engines.transformers_generate.plan", "TransformersPlan"),
}
"""Name in `--engine` -> module and class; imported when it is asked for."""


def plan_class(engine: str) -> type[Plan]:
    """The class that answers for an engine.

    Raises:
        KeyError: no such engine.
    """
    module, name = PLANS[engine]
    return cast("type[Plan]", getattr(import_module(module), name))


def names_own_formats(engine: str) -> bool:
    """Whether an engine names formats of weights in its own way (GGUF presets)."""
    return engine in PLANS and plan_class(engine).OWN_QUANTIZATION


def gguf_loading(engine: str) -> str:
    """How an engine loads the weights of a GGUF file: `kept`, `floats`, or '' for not at all."""
    return plan_class(engine).GGUF if engine in PLANS else ""


def is_gguf_preset(name: str) -> bool:
    """Whether a quantisation is named by a GGUF preset (`q4_k_m`, `gguf-q8_0`); plain 16-bit formats are not.

    >>> is_gguf_preset("gguf-q8_0"), is_gguf_preset("bf16"), is_gguf_preset("awq-int4")
    (True, False, False)
    """
    from kvtax.engines.llama_cpp.presets import is_preset

    key = name.strip().lower().removeprefix("gguf-")
    return key.startswith(("q", "iq", "tq")) and is_preset(key)


def gguf_bytes(architecture: Architecture, preset: str) -> int:
    """The tensors of a plain GGUF file of a model [bytes]."""
    from kvtax.engines.llama_cpp.from_architecture import shape_of
    from kvtax.engines.llama_cpp.weights import gguf_file

    name = preset.strip().lower().removeprefix("gguf-")
    return gguf_file(architecture, shape_of(architecture), name, None, fused_qkv_is_value=True).file_bytes


def make_plan(question: Question) -> Plan:
    """The answer of the engine that the deployment names.

    Raises:
        InputError: a field that this engine has no counterpart for is set.
        NotKnownError: an engine whose rules are not known.
    """
    if question.deployment.engine not in PLANS:
        raise NotKnownError(
            f"the rules of {question.deployment.engine} are not in this release",
            code="engine-not-modelled",
            hint="engines whose rules are known: " + ", ".join(PLANS),
            where="engine",
        )
    made = plan_class(question.deployment.engine)
    check_fields(question.deployment, made)
    return made(question)


def check_fields(deployment: Deployment, plan: type[Plan]) -> None:
    """Refuse a field that is set and that the engine knows nothing of, naming the engines that do.

    Raises:
        InputError: the first such field.
    """
    defaults = Deployment._field_defaults
    for name, value in zip(Deployment._fields, deployment, strict=True):
        if value == defaults[name] or name in COMMON_FIELDS or name in plan.FIELDS:
            continue
        having = [engine for engine in PLANS if name in plan_class(engine).FIELDS]
        raise InputError(
            f"{deployment.engine} has no {name}",
            code="field-not-in-engine",
            hint="engines that have it: " + (", ".join(having) or "none"),
            where=name,
        )
