"""Slots for LoRA adapters on one rank of a vLLM server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.architectures.tensors import Tensor
from kvtax.engines.vllm.part import Part
from kvtax.engines.vllm.rules import rule
from kvtax.formulas.lora import lora_bytes, lora_elements, vocabulary_elements
from kvtax.terms import Input

if TYPE_CHECKING:
    from kvtax.engines.vllm.plan import VllmPlan
    from kvtax.engines.vllm.stages import Stage


VOCABULARY_SLOTS = frozenset((
    "LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Qwen3ForCausalLM", "GraniteForCausalLM", "JambaForCausalLM",
    "BambaForCausalLM", "NemotronHForCausalLM", "Lfm2ForCausalLM",
))  # fmt: skip
"""Classes with slots for embedding and head too: `embedding_modules` of their file in vllm model_executor/models (read for Llama, Qwen3,
LFM2 and Jamba in 2026; the others as they were in 2025). Where it is empty (Gemma, Qwen2, Qwen2-VL, ChatGLM, MiniCPM-V) there are none."""


def _vocabulary(plan: VllmPlan, stage: Stage) -> int:
    """Elements of the slots of embedding and head on a stage."""
    architecture = plan.question.architecture
    if architecture.name not in VOCABULARY_SLOTS:
        return 0
    parts = {tensor.component for tensor in stage.tensors}
    tied = not any(tensor.component == "lm_head" for tensor in architecture.tensors)
    last = plan.question.deployment.pipeline_parallel_size == 1 or "lm_head" in parts
    return vocabulary_elements(
        architecture.vocab_size,
        architecture.hidden_size,
        embedding="embedding" in parts,
        head=last or (tied and "embedding" in parts),
    )


def adapter_parts(plan: VllmPlan, stage: Stage) -> list[Part]:
    """The slots of a stage: max_loras * max_lora_rank * (inputs + outputs of its linear layers) * element_bytes.

    Source: vllm 0.33.0 lora/model_manager.py, lora/layers; experts have slots since MoE adapters are served.
    """
    deployment = plan.question.deployment
    lora = deployment.lora
    if lora is None:
        return []
    tp = deployment.tensor_parallel_size
    held = {layer for tensor in stage.tensors for layer in tensor.layers}
    experts = bool(rule("expert_adapters", plan.version))
    elements = lora_elements(
        [_of_stage(tensor, held) for tensor in plan.question.architecture.tensors],
        tp,
        experts=experts,
        expert_ranks=tp * deployment.data_parallel_size,
    )
    elements += _vocabulary(plan, stage)
    size = lora_bytes(lora.max_loras, lora.max_lora_rank, elements, plan.element_bytes)
    what = "inputs and outputs of linear layers (and the vocabulary, where the class has slots for it) on one rank" + (
        ", experts too" if experts else ", not of experts"
    )
    inputs = {
        "max_loras": Input(lora.max_loras, "adapters", "flag"),
        "max_lora_rank": Input(lora.max_lora_rank, "-", "flag"),
        "elements": Input(elements, "elements", what),
        "element_bytes": Input(plan.element_bytes, "B", plan.settings["dtype"].origin),
    }
    formula = "max_loras * max_lora_rank * elements * element_bytes"
    return [Part("lora_slots", size, formula, inputs, "vllm lora/layers/base_linear.py create_lora_weights")]


def _of_stage(tensor: Tensor, held: set[int]) -> Tensor:
    """The tensor with the layers that the stage has; one that stands once keeps its place."""
    if not tensor.layers:
        return tensor
    layers = tuple(layer for layer in tensor.layers if layer in held)
    return tensor._replace(layers=layers) if layers else tensor._replace(loaded=False)
