"""What loading needs for a while on vLLM, beyond what stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.engines import loading
from kvtax.engines.vllm.rules import rule
from kvtax.formulas.weights import element_bytes, rank_tensors, sum_elements

if TYPE_CHECKING:
    from kvtax.engines.vllm.plan import VllmPlan
    from kvtax.engines.vllm.stages import Stage

ONLINE = "-online"
"""Ends the name of a method that the engine applies itself to a 16-bit checkpoint; without it the checkpoint is of that kind already."""


def loading_peak_bytes(plan: VllmPlan, stage: Stage) -> int:
    """What loading holds beyond rest.

    Online quantisation before layer-wise loading: 16-bit weights - quantised weights; after it, and for weights that a kernel repacks
    (GPTQ, AWQ, compressed-tensors, mxfp4): the largest layer once more.

    Source: vllm model_executor/layers/quantization/fp8.py (0.12: parameters are created in the model's dtype, then converted),
    marlin_utils.py (a transient copy of a layer).
    """
    deployment, quantization = plan.question.deployment, plan.question.architecture.quantization
    if quantization is None or deployment.weights_bytes is not None:
        return 0
    name = (deployment.quantization or "").strip().lower()
    online = name.endswith(ONLINE)
    if name == "fp8" + ONLINE and not rule("online_by_layer", plan.version):
        return max(_plain_bytes(plan, stage) - stage.weights_bytes - stage.offloaded_bytes, 0)
    return _largest_layer(stage) if online or quantization.bits < 8 else 0


def _plain_bytes(plan: VllmPlan, stage: Stage) -> int:
    """The stage's weights in the model's dtype [bytes]."""
    deployment = plan.question.deployment
    plain = plan.question.architecture.replace(
        quantization=None,
        caches=plan.question.architecture.caches,
        cache_layers=plan.question.architecture.cache_layers,
    )
    held = {layer for tensor in stage.tensors for layer in tensor.layers}
    tensors = rank_tensors(
        plain,
        deployment.tensor_parallel_size,
        dp=deployment.data_parallel_size,
        expert_parallel=deployment.expert_parallel,
        stage=range(min(held), max(held) + 1) if held and deployment.pipeline_parallel_size > 1 else None,
        dtype=str(plan.settings["dtype"].value),
        without=loading.components_left_out(
            str(plan.settings["runner"].value), deployment.language_model_only, deployment.limit_mm_per_prompt
        ),
    )
    return sum(element_bytes(count, dtype) for (_, dtype), count in sum_elements(tensors).items())


def _largest_layer(stage: Stage) -> int:
    """The bytes of the layer that has most."""
    alike: dict[tuple[int, ...], int] = {}
    for tensor in stage.tensors:
        if tensor.layers:
            size = element_bytes(tensor.elements, tensor.dtype) // len(tensor.layers)
            alike[tensor.layers] = alike.get(tensor.layers, 0) + size
    layers: dict[int, int] = {}
    for held, size in alike.items():
        for layer in held:
            layers[layer] = layers.get(layer, 0) + size
    return max(layers.values(), default=0)
