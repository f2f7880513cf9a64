"""The terms of a llama.cpp budget: each number with its formula, inputs, origins and source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtax.architectures.gguf.shape import Layer, Shape
from kvtax.engines.llama_cpp import cache, compute
from kvtax.engines.llama_cpp.cache import Context
from kvtax.terms import Input, Term

if TYPE_CHECKING:
    from kvtax.engines.llama_cpp.budgeting import Device
    from kvtax.engines.llama_cpp.plan import Detail, LlamaCppPlan

_CONFIG = "config.json"
_CACHE_SOURCE = "ggml-org/llama.cpp b11434 src/llama-kv-cache.cpp"


def all_terms(plan: LlamaCppPlan, detail: Detail) -> list[Term]:
    """Weights, caches and buffers of the tightest card, and what is in RAM."""
    device = detail.load.tightest
    found = [_weights(plan, detail, device), *_caches(plan.shape, detail, device), _compute(plan, detail, device)]
    found.append(
        _given(
            "runtime.outside",
            device.memory.outside_bytes,
            "outside_bytes",
            "CUDA context and kernels, in no figure of llama.cpp",
        )
    )
    if device.memory.load_extra_bytes:
        found.append(_given("runtime.mmproj", device.memory.load_extra_bytes, "mmproj_bytes", "flag", "flag"))
    return found + _host(plan.shape, detail)


def _given(name: str, size: int, symbol: str, source: str, origin: str = "estimate") -> Term:
    return Term(name, size, symbol, {symbol: Input(size, "B", origin)}, source)


def _weights(plan: LlamaCppPlan, detail: Detail, device: Device) -> Term:
    """The model buffer of the card: blocks, experts, output."""
    given = plan.question.deployment.weights_bytes
    if given is not None:
        return _given("weights", given, "weights_bytes", "given", "flag")
    size = device.share.weights_bytes
    origin = f"{plan.file.preset} ({plan.file.origin}), {len(device.share.layers)} of {len(plan.shape.layers)} blocks"
    source = "ggml-org/llama.cpp b11434 src/llama-quant.cpp: one type for each tensor"
    whole = detail.machine.split_mode in ("row", "tensor") and len(detail.machine.cards) > 1
    if whole:
        return Term("weights", size, "share_bytes", {"share_bytes": Input(size, "B", origin)}, source)
    weights = plan.file.weights
    output = weights.output_bytes + weights.tied_bytes if device.share.output else 0
    blocks = sum(weights.layers[index].rest_bytes for index in device.share.layers) + weights.repeated_bytes * bool(
        device.share.layers
    )
    inputs = {
        "blocks_bytes": Input(blocks, "B", origin),
        "experts_bytes": Input(
            size - blocks - output, "B", f"all but those of {detail.machine.experts_in_ram} blocks in RAM"
        ),
        "output_bytes": Input(output, "B", "output matrix and final norm; a tied embedding a second time"),
    }
    return Term("weights", size, "blocks_bytes + experts_bytes + output_bytes", inputs, source)


def _caches(shape: Shape, detail: Detail, device: Device) -> list[Term]:
    """Keys and values and states, one term for layers that are alike."""
    context, total = detail.context, device.kv_bytes + device.state_bytes
    if not total:
        return [_given("kv_pool", 0, "kv_bytes", "nothing is kept on the card", "formula")]
    counts: dict[Layer, int] = {}
    for index in device.share.layers:
        layer = shape.layers[index]._replace(head_count=0, feed_forward_length=0)
        counts[layer] = counts.get(layer, 0) + 1
    found: list[Term] = []
    for layer, count in counts.items():
        if layer.attends:
            found.append(_layer_term(shape, context, layer, count, len(found)))
        if layer.recurrent or layer.compressor_elements:
            found.append(_state_term(shape, context, layer, count, len(found)))
    if detail.machine.split_mode == "tensor" and len(detail.machine.cards) > 1:
        return [_given("kv_pool", total, "share_bytes", _CACHE_SOURCE + ", cut by the cards' shares", "formula")]
    inputs = {f"part_{index}_bytes": Input(int(term.bytes), "B", term.name) for index, term in enumerate(found)}
    return [*found, Term("kv_pool", total, " + ".join(inputs), inputs, _CACHE_SOURCE)]


def _layer_term(shape: Shape, context: Context, layer: Layer, count: int, number: int) -> Term:
    windowed = layer.windowed and shape.windowed
    name = f"kv.{'window' if windowed else 'latent' if shape.latent else 'full'}.{number}"
    size = count * cache.layer_kv_bytes(shape, layer, context)
    inputs = {
        "layers": Input(count, "layers", _CONFIG),
        "streams": Input(context.streams, "streams", "one cache for all slots" if context.kv_unified else "one a slot"),
    }
    if layer.indexer_length or layer.compress_ratio:
        stream = cache.layer_kv_bytes(shape, layer, context) // context.streams
        inputs["stream_bytes"] = Input(
            stream, "B", f"{context.n_ctx_seq} tokens, with compressed rows and indexer keys"
        )
        return Term(
            name,
            size,
            "layers * streams * stream_bytes",
            inputs,
            "ggml-org/llama.cpp b11434 src/llama-kv-cache-dsa.cpp, -dsv4.cpp",
        )
    cells = cache.window_cells(shape, context) if windowed else context.n_ctx_seq
    inputs["cells"] = Input(cells, "tokens", f"window {shape.sliding_window}" if windowed else "n_ctx of a stream")
    inputs["cell_bytes"] = Input(
        cache.cell_bytes(shape, layer, context),
        "B",
        f"{layer.key_width} elements {context.cache_type_k}, {layer.value_width} {context.cache_type_v}",
    )
    return Term(name, size, "layers * streams * cells * cell_bytes", inputs, _CACHE_SOURCE)


def _state_term(shape: Shape, context: Context, layer: Layer, count: int, number: int) -> Term:
    size = cache.layer_state_bytes(shape, layer, context)
    elements = layer.conv_elements + layer.state_elements + layer.compressor_elements
    inputs = {
        "layers": Input(count, "layers", _CONFIG),
        "elements": Input(elements, "elements", f"{_CONFIG}: R {layer.conv_elements}, S {layer.state_elements}"),
        "copies": Input(size // (4 * elements), "states", "slots x (1 + n_rs_seq)"),
    }
    source = "ggml-org/llama.cpp b11434 src/llama-memory-recurrent.cpp"
    return Term(f"state.{number}", count * size, "layers * 4 * elements * copies", inputs, source)


def _compute(plan: LlamaCppPlan, detail: Detail, device: Device) -> Term:
    """The compute buffer by its parts where all layers are on cards, else as one number."""
    source = "ggml-org/llama.cpp b11434 src/llama-context.cpp graph_reserve, closed form against 553 measured buffers"
    parts = compute.device_parts(
        plan.shape, detail.context, plan.era, outputs=device.share.output, on_cuda=detail.machine.on_cuda
    )
    extra = device.compute_bytes - parts.total_bytes
    origin = f"{detail.context.ubatch} tokens a step"
    if detail.load.host_share.layers or detail.machine.experts_in_ram or not device.compute_bytes:
        return _given(
            "activation",
            device.compute_bytes,
            "compute_bytes",
            source + "; matrices brought from RAM included",
            "formula",
        )
    phase = parts.total_bytes - parts.lasting_bytes - parts.copies_bytes
    inputs = {
        "inputs_bytes": Input(parts.inputs_bytes, "B", origin),
        "mask_bytes": Input(parts.mask_bytes, "B", f"{detail.context.n_ctx_seq} cells for each token of a step"),
        "values_bytes": Input(parts.values_bytes, "B", "row indices, without flash attention"),
        "per_layer_bytes": Input(parts.per_layer_bytes, "B", "embeddings of each layer"),
        "rotation_bytes": Input(parts.rotation_bytes, "B", "quantised caches"),
        "phase_bytes": Input(phase, "B", "the largest of feed-forward, attention, output, beyond what lasts"),
        "copies_bytes": Input(parts.copies_bytes + extra, "B", "of quantised caches, of inputs for several cards"),
    }
    return Term("activation", device.compute_bytes, " + ".join(inputs), inputs, source)


def _host(shape: Shape, detail: Detail) -> list[Term]:
    """Embeddings, caches and buffers in RAM."""
    host = detail.load.host
    output = {
        "vocab_size": Input(shape.vocab_size, "tokens", _CONFIG),
        "n_parallel": Input(detail.context.n_parallel, "requests", "slots"),
    }
    found = [
        _given("host.weights", host.weights_bytes, "host_weights_bytes", "embedding tables, and blocks that are not on cards", "formula"),
        Term("host.output", detail.load.output_bytes, "4 * vocab_size * n_parallel", output, "ggml-org/llama.cpp b11434 output_reserve"),
        _given(
            "host.compute", host.compute_bytes - detail.load.output_bytes, "host_compute_bytes",
            "ggml-org/llama.cpp b11434, closed form against 553 measured buffers", "formula",
        ),
    ]  # fmt: skip
    if host.kv_bytes:
        found.append(_given("host.kv", host.kv_bytes, "host_kv_bytes", _CACHE_SOURCE, "formula"))
    return found


def figure_terms(detail: Detail) -> list[Term]:
    """Cells of the context."""
    context = detail.context
    inputs = {
        "n_ctx_seq": Input(context.n_ctx_seq, "tokens", f"-c {context.n_ctx}, padded to {context.cells_padding}"),
        "streams": Input(context.streams, "streams", "one cache for all slots" if context.kv_unified else "one a slot"),
    }
    source = "ggml-org/llama.cpp b11434 src/llama-context.cpp"
    return [Term("n_ctx", context.n_ctx_effective, "n_ctx_seq * streams", inputs, source, "tokens")]


def printed(shape: Shape, context: Context) -> list[str]:
    """The lines of llama.cpp's log about the context."""
    kinds = [
        f"llama_context: n_ctx         = {context.n_ctx_effective}",
        f"llama_context: n_ctx_seq     = {context.n_ctx_seq}",
    ]
    kv = sum(cache.layer_kv_bytes(shape, layer, context) for layer in shape.layers)
    state = sum(cache.layer_state_bytes(shape, layer, context) for layer in shape.layers)
    if kv:
        kinds.append(f"KV buffer size = {kv / 2**20:8.2f} MiB")
    if state:
        kinds.append(f"RS buffer size = {state / 2**20:8.2f} MiB")
    kinds.append(f"output buffer size = {cache.output_bytes(shape, context) / 2**20:8.2f} MiB")
    return kinds
