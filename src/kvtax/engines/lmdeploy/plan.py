"""LMDeploy's answer to one deployment, for TurboMind and for the PyTorch engine."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from kvtax.architectures.cache import Recurrent
from kvtax.engines import running
from kvtax.engines.answer import Answer, Memory, Pool, Setting, pool_bytes_per_token
from kvtax.engines.block_table import blocks_of, common_window, table_blocks, table_token_bytes
from kvtax.engines.free_share import FreeSharePlan, Share
from kvtax.engines.intervals import EXACT, Margin
from kvtax.engines.lmdeploy import rules
from kvtax.engines.load_terms import given_term
from kvtax.engines.stages import Stage
from kvtax.engines.step_peaks import FRAGMENTATION, step_peaks
from kvtax.engines.tensorrt_llm.terms import activation_term
from kvtax.errors import InputError
from kvtax.terms import Input, Notice, Term

TURBOMIND, PYTORCH = "turbomind", "pytorch"
SPARE_STATES = 2
"""States beyond max_batch_size: one for the system, one for a prefill that rolls (executor/base.py)."""


class Own(NamedTuple):
    """What the terms need besides memory and pool [bytes]."""

    state_bytes: int
    runtime_bytes: int


class LmDeployPlan(FreeSharePlan):
    """LMDeploy.

    Args:
        question: names resolved.
    """

    NAME = "lmdeploy"
    NEWEST = rules.NEWEST
    OLDEST = rules.OLDEST
    RULES = rules.RULES
    CHECKED = "7 pools worked out by hand from its sources; no printed start"
    LABELS: ClassVar[dict[str, str]] = {
        "kv_pool": "KV blocks",
        "activation": "a step",
        "cuda_graphs": "CUDA graphs",
        "runtime": "runtime",
    }
    UNKNOWN_CACHES = frozenset(("compressed_latent", "cross_attention"))
    FIELDS = frozenset((
        "tensor_parallel_size", "data_parallel_size", "expert_parallel", "block_size", "max_num_seqs", "max_num_batched_tokens",
        "enforce_eager", "enable_prefix_caching", "gpu_memory_utilization", "num_gpu_blocks_override", "quant_policy", "backend",
    ))  # fmt: skip

    def settle(self) -> None:
        """Note the settings."""
        deployment, architecture, gpu = self.question.deployment, self.question.architecture, self.question.gpu
        asked = deployment.backend.lower() if deployment.backend else None
        if asked not in (None, TURBOMIND, PYTORCH):
            raise InputError(
                f"backend {asked!r:.64} is not known", code="unknown-name", hint="turbomind or pytorch", where="backend"
            )
        recurrent = any(isinstance(cache, Recurrent) for cache in architecture.caches)
        able = architecture.model_type in rules.TURBOMIND_TYPES and not recurrent
        self.set_from("backend", asked, TURBOMIND if able else PYTORCH)
        self.pytorch = self.settings["backend"].value == PYTORCH
        self.set_from("gpu_memory_utilization", deployment.gpu_memory_utilization, rules.CACHE_MAX_ENTRY_COUNT)
        self.set_from("max_num_seqs", deployment.max_num_seqs, rules.default_max_batch_size(gpu))
        self.set_from("max_num_batched_tokens", deployment.max_num_batched_tokens, rules.MAX_PREFILL_TOKENS)
        size = rules.block_size(architecture, gpu, deployment.block_size, self.pytorch)
        self.settings["block_size"] = Setting(
            size, "flag" if size == deployment.block_size else f"default of {self.label}"
        )
        self.set_from("enable_prefix_caching", deployment.enable_prefix_caching, False)
        self.set_from("enforce_eager", deployment.enforce_eager or None, False)
        self.set_from("quant_policy", deployment.quant_policy, 0)
        kv = rules.kv_format(int(self.settings["quant_policy"].value), str(self.settings["dtype"].value))
        self.settings["kv_cache_dtype"] = Setting(kv, self.settings["quant_policy"].origin)
        message = "what a step needs beside the pool is an estimate: the engine leaves it the rest of the card and does not measure it"
        self.notices.append(
            Notice("step-estimated", message, "lower --gpu-memory-utilization (cache_max_entry_count) if it runs out")
        )

    def own_refusal(self) -> Notice | None:
        """Key/value heads that the PyTorch engine cannot split."""
        heads = running.uneven_kv_heads(self.question.architecture, self.question.deployment.tensor_parallel_size)
        if not self.pytorch or not heads:
            return None
        tp = self.question.deployment.tensor_parallel_size
        message = (
            f"{heads} key/value heads do not divide by tensor_parallel_size {tp}, which the PyTorch engine asks for"
        )
        return Notice("kv-heads-not-divisible", message, f"use a divisor of {heads}, or --backend turbomind")

    def divide(self, stage: Stage, max_model_len: int) -> Share:
        """Memory and blocks of one rank."""
        deployment, architecture, total = (
            self.question.deployment,
            self.question.architecture,
            self.question.total_bytes,
        )
        tp = deployment.tensor_parallel_size
        share = float(self.settings["gpu_memory_utilization"].value)
        tokens, seqs, size = (
            int(self.settings[name].value) for name in ("max_num_batched_tokens", "max_num_seqs", "block_size")
        )
        weights = deployment.weights_bytes if deployment.weights_bytes is not None else stage.weights_bytes
        outside = running.outside_bytes(self.question.gpu, tp, total, deployment.free_memory)
        free = total - outside - weights
        state, kept = self.stage_state_bytes(stage), 0
        block = size * table_token_bytes(stage.caches, self.kv_cache_dtype)
        states = (seqs + SPARE_STATES) * state if self.pytorch else 0
        if self.pytorch and block:
            kept, tokens = rules.runtime_bytes(free - states, share, block, tokens, seqs, architecture.vocab_size)
        kv = int((free - states - kept) * share // 1)
        if deployment.num_gpu_blocks_override is not None:
            kv = deployment.num_gpu_blocks_override * block
        peaks = step_peaks(architecture, tp, max(tokens, 1), seqs, self.element_bytes)
        activation = int(max(peaks.values()) * FRAGMENTATION // 1)
        memory = Memory(
            total, outside + weights + states + kept + max(kv, 0), weights, 0, states, outside, activation, 0, kv
        )
        return Share(
            stage, memory, self._count(stage, kv, block, max_model_len), peaks, max_model_len, Own(states, kept)
        )

    def _count(self, stage: Stage, kv: int, block: int, max_model_len: int) -> Pool:
        size = int(self.settings["block_size"].value)
        blocks = table_blocks(kv, block)
        window = common_window(stage.caches)
        need = blocks_of(max_model_len, size)
        if window and window < max_model_len:
            need = min(need, blocks_of(window, size) + 1)
        most = float(blocks // need) if block else float(int(self.settings["max_num_seqs"].value))
        per_token = pool_bytes_per_token(blocks, block, blocks * size)
        return Pool(size, block, blocks, need if block else 0, blocks * size, most, need * block, per_token)

    def memory_terms(self, share: Share) -> list[Term]:
        """What a step and the states take, and what is left."""
        memory, fraction, own = share.memory, self.settings["gpu_memory_utilization"], share.own
        source = "InternLM/lmdeploy lmdeploy/pytorch/engine/executor/base.py, 0.18"
        if not self.pytorch:
            source = "InternLM/lmdeploy src/turbomind/turbomind.cc, 0.18: a share of what is free after weights"
        found = [
            activation_term(
                share, "the largest of a step's peaks, by reading; it comes out of the share that KV leaves"
            ),
            given_term("runtime.outside", memory.outside_bytes, "outside_bytes", "CUDA context and communicators"),
        ]
        if own.state_bytes:
            found.append(
                given_term(
                    "runtime.states", own.state_bytes, "state_bytes", f"{source}: max_batch_size + 2 states", "formula"
                )
            )
        if self.question.deployment.num_gpu_blocks_override is not None:
            found.append(
                given_term(
                    "kv_pool", memory.kv_pool_bytes, "blocks_bytes", f"{source}: as many blocks as asked", "flag"
                )
            )
            return found
        inputs = {
            "total_bytes": Input(memory.total_bytes, "B", self.question.total_origin),
            "outside_bytes": Input(memory.outside_bytes, "B", "estimate"),
            "weights_bytes": Input(memory.weights_bytes, "B", "formula"),
            "state_bytes": Input(own.state_bytes, "B", "formula"),
            "runtime_bytes": Input(own.runtime_bytes, "B", "(prefill tokens + 2 * max_batch_size) * vocab_size * 2"),
            "cache_max_entry_count": Input(float(fraction.value), "-", fraction.origin),
        }
        formula = (
            "(total_bytes - outside_bytes - weights_bytes - state_bytes - runtime_bytes) * cache_max_entry_count // 1"
        )
        found.append(Term("kv_pool", memory.kv_pool_bytes, formula, inputs, source))
        return found

    def figures(self, answer: Answer) -> list[Term]:
        """Blocks and concurrency."""
        pool, memory = answer.pool, answer.memory
        if not pool.bytes_per_block:
            return []
        blocks = {
            "kv_pool_bytes": Input(max(memory.kv_pool_bytes, 0), "B", "formula"),
            "bytes_per_block": Input(pool.bytes_per_block, "B", f"{pool.block_size} tokens in every layer"),
        }
        requests = {
            "blocks": Input(pool.blocks, "blocks", "formula"),
            "blocks_per_request": Input(pool.blocks_per_request, "blocks", f"{answer.detail.max_model_len} tokens"),
        }
        source = "InternLM/lmdeploy lmdeploy/pytorch/engine/executor/base.py _get_num_gpu_blocks"
        return [
            Term("blocks", pool.blocks, "kv_pool_bytes // bytes_per_block", blocks, source, "blocks"),
            Term(
                "max_concurrency",
                int(pool.max_concurrency),
                "blocks // blocks_per_request",
                requests,
                source,
                "requests",
            ),
        ]

    def margin(self) -> Margin:
        """None where the number of blocks is given; no printed start is known otherwise."""
        return EXACT if self.question.deployment.num_gpu_blocks_override is not None else super().margin()

    def kind(self) -> str:
        """The kind of case, by which residuals of real starts are gathered."""
        return f"lmdeploy {self.settings['backend'].value}"
