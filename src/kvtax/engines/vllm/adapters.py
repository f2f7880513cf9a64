"""Slots for LoRA adapters on one rank of a vLLM server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.architectures.tensors import Tensor
from kvtax.engines.vllm.part import Part
from kvtax.engines.vllm.rules import rule
from kvtax.formulas.lora import lora_bytes, lora_elements
from kvtax.terms import Input

if TYPE_CHECKING:
    from kvtax.engines.vllm.plan import VllmPlan
    from kvtax.engines.vllm.stages import Stage


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
    size = lora_bytes(lora.max_loras, lora.max_lora_rank, elements, plan.element_bytes)
    what = "inputs and outputs of linear layers on one rank" + (", experts too" if experts else ", not of experts")
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
