"""TGI's answer to one deployment: what a warm-up step leaves, in blocks that a request reserves whole."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from kvtax.engines import running
from kvtax.engines.answer import Answer, Memory, Pool, pool_bytes_per_token
from kvtax.engines.block_table import blocks_of, common_window, table_blocks, table_token_bytes
from kvtax.engines.free_share import FreeSharePlan, Share
from kvtax.engines.load_terms import given_term
from kvtax.engines.stages import Stage
from kvtax.engines.step_peaks import FRAGMENTATION, step_peaks
from kvtax.engines.tensorrt_llm.memory import GRAPH_BYTES_PER_LAYER, graph_bytes
from kvtax.engines.tensorrt_llm.terms import activation_term
from kvtax.engines.tgi import rules
from kvtax.terms import Input, Notice, Term

_WARMUP = "huggingface/text-generation-inference server/text_generation_server/models/flash_causal_lm.py warmup, v3.3.7"


class Own(NamedTuple):
    """What the terms need besides memory and pool."""

    reserved_tokens: int
    usable_blocks: int


class TgiPlan(FreeSharePlan):
    """TGI on CUDA with flash attention.

    Args:
        question: names resolved.
    """

    NAME = "tgi"
    NEWEST = rules.NEWEST
    OLDEST = rules.OLDEST
    RULES = rules.RULES
    CHECKED = "9 pools worked out by hand from its sources; no printed start"
    LABELS: ClassVar[dict[str, str]] = {
        "kv_pool": "KV blocks",
        "activation": "warm-up step",
        "cuda_graphs": "CUDA graphs",
        "runtime": "runtime",
    }
    UNKNOWN_CACHES = frozenset(("recurrent", "compressed_latent", "cross_attention"))
    FIELDS = frozenset((
        "tensor_parallel_size", "block_size", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "enable_prefix_caching",
        "gpu_memory_utilization", "kv_cache_dtype", "speculative", "attention_backend",
    ))  # fmt: skip

    def settle(self) -> None:
        """Note the settings."""
        deployment, architecture, gpu = self.question.deployment, self.question.architecture, self.question.gpu
        kernels = deployment.attention_backend or rules.attention(architecture, gpu)
        self.kernels = kernels if kernels in ("flashinfer", "flashdecoding", "paged") else "flashinfer"
        self.set_from("attention_backend", deployment.attention_backend, self.kernels)
        self.set_from("block_size", deployment.block_size, rules.default_block_size(self.kernels))
        self.set_from("gpu_memory_utilization", deployment.gpu_memory_utilization, 1.0)
        self.set_from("max_num_seqs", deployment.max_num_seqs, rules.MAX_CONCURRENT_REQUESTS)
        vision = any(tensor.component == "vision" for tensor in architecture.tensors)
        self.set_from("enable_prefix_caching", deployment.enable_prefix_caching, self.kernels != "paged" and not vision)
        tokens = rules.default_prefill_tokens(architecture, gpu, deployment.tensor_parallel_size, vision)
        self.set_from("max_num_batched_tokens", deployment.max_num_batched_tokens, tokens)
        self.set_from("enforce_eager", deployment.enforce_eager or None, False)
        message = "the peak of TGI's warm-up step is an estimate from the shapes of its tensors: no printed start was there to hold it against"
        self.notices.append(
            Notice("warm-up-estimated", message, "give --free-memory, and the step with --max-num-batched-tokens")
        )

    def divide(self, stage: Stage, max_model_len: int) -> Share:
        """Memory and blocks of one rank."""
        deployment, architecture, total = (
            self.question.deployment,
            self.question.architecture,
            self.question.total_bytes,
        )
        tp, tokens = deployment.tensor_parallel_size, int(self.settings["max_num_batched_tokens"].value)
        peaks = step_peaks(architecture, tp, tokens, blocks_of(tokens, max(max_model_len - 1, 1)), self.element_bytes)
        activation = int(max(peaks.values()) * FRAGMENTATION // 1)
        weights = deployment.weights_bytes if deployment.weights_bytes is not None else stage.weights_bytes
        graphs = 0 if self.settings["enforce_eager"].value else graph_bytes(stage.layers, rules.GRAPH_SIZES)
        outside = running.outside_bytes(self.question.gpu, tp, total, deployment.free_memory)
        limit = int(total * float(self.settings["gpu_memory_utilization"].value) * rules.WIGGLE_ROOM // 1)
        kv = limit - outside - weights - activation
        memory = Memory(total, limit, weights, 0, 0, outside, activation, graphs, kv)
        pool, own = self._count(stage, kv, max_model_len)
        return Share(stage, memory, pool, peaks, max_model_len, own)

    def _count(self, stage: Stage, kv: int, max_model_len: int) -> tuple[Pool, Own]:
        size = int(self.settings["block_size"].value)
        block = size * table_token_bytes(stage.caches, self.kv_cache_dtype)
        blocks = table_blocks(kv, block)
        tokens = self.reserved_tokens(max_model_len)
        window = common_window(stage.caches)
        if window and not self.settings["enable_prefix_caching"].value:
            tokens = min(tokens, window)
        need = blocks_of(tokens, size)
        usable = max(blocks - 1, 0)
        pool = Pool(
            size,
            block,
            blocks,
            need,
            blocks * size,
            float(usable // need) if block else 0.0,
            need * block,
            pool_bytes_per_token(blocks, block, blocks * size),
        )
        return pool, Own(tokens, usable)

    def reserved_tokens(self, max_model_len: int) -> int:
        """Tokens that a request reserves from its first step on: input + new tokens + speculate - 1.

        Source: huggingface/text-generation-inference router (backends/v3/src/queue.rs), v3.3.7.
        """
        speculative = self.question.deployment.speculative
        return max(max_model_len - 1 + (speculative.num_speculative_tokens if speculative else 0), 1)

    def memory_terms(self, share: Share) -> list[Term]:
        """The limit, the peak of the warm-up, and what is left."""
        memory, fraction = share.memory, self.settings["gpu_memory_utilization"]
        limit = {
            "total_bytes": Input(memory.total_bytes, "B", self.question.total_origin),
            "cuda_memory_fraction": Input(float(fraction.value), "-", fraction.origin),
            "wiggle_room": Input(rules.WIGGLE_ROOM, "-", "default of the server"),
        }
        left = {
            "limit_bytes": Input(memory.limit_bytes, "B", "formula"),
            "outside_bytes": Input(memory.outside_bytes, "B", "estimate"),
            "weights_bytes": Input(memory.weights_bytes, "B", "formula"),
            "activation_bytes": Input(memory.activation_bytes, "B", "formula"),
        }
        found = [
            Term("limit", memory.limit_bytes, "total_bytes * cuda_memory_fraction * wiggle_room // 1", limit, _WARMUP),
            activation_term(
                share, f"{_WARMUP}: one prefill of max_batch_prefill_tokens; shapes by reading, not measured"
            ),
            given_term(
                "runtime.outside",
                memory.outside_bytes,
                "outside_bytes",
                "CUDA context and communicators, counted as used",
            ),
        ]
        if memory.cuda_graph_bytes:
            source = (
                f"estimate: {GRAPH_BYTES_PER_LAYER} B a layer and size; captured after the pool, out of the wiggle room"
            )
            found.append(given_term("cuda_graphs", memory.cuda_graph_bytes, "cuda_graph_bytes", source))
        formula = "limit_bytes - outside_bytes - weights_bytes - activation_bytes"
        found.append(
            Term("kv_pool", memory.kv_pool_bytes, formula, left, f"{_WARMUP}: blocks of the warm-up are added back")
        )
        return found

    def figures(self, answer: Answer) -> list[Term]:
        """Blocks and concurrency."""
        share: Share = answer.detail
        pool, own = share.pool, share.own
        if not pool.bytes_per_block:
            return []
        blocks = {
            "kv_pool_bytes": Input(max(share.memory.kv_pool_bytes, 0), "B", "formula"),
            "bytes_per_block": Input(pool.bytes_per_block, "B", f"{pool.block_size} tokens in every layer"),
        }
        requests = {
            "usable_blocks": Input(own.usable_blocks, "blocks", "all but block 0"),
            "blocks_per_request": Input(
                pool.blocks_per_request, "blocks", f"{own.reserved_tokens} tokens are reserved at once"
            ),
        }
        source = "huggingface/text-generation-inference backends/v3/src/block_allocator.rs, v3.3.7"
        return [
            Term("blocks", pool.blocks, "kv_pool_bytes // bytes_per_block", blocks, _WARMUP, "blocks"),
            Term(
                "max_concurrency",
                int(pool.max_concurrency),
                "usable_blocks // blocks_per_request",
                requests,
                source,
                "requests",
            ),
        ]

    def kind(self) -> str:
        """The kind of case, by which residuals of real starts are gathered."""
        return "tgi"

    def prints(self, answer: Answer, max_model_len: int) -> list[str]:
        """The server's line about its blocks."""
        return [f"KV-cache blocks: {answer.pool.blocks}, size: {answer.pool.block_size}"]
