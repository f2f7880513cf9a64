"""transformers' answer to one deployment: what a batch allocates, and the largest that a card holds."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from kvtax.architectures.cache import LayerCache, MultiHeadLatent, Recurrent
from kvtax.architectures.tensors import numel
from kvtax.dtypes import find_dtype
from kvtax.engines import running
from kvtax.engines.answer import (
    FITS,
    OUT_OF_MEMORY,
    REFUSED,
    Answer,
    Host,
    Memory,
    Pool,
    Question,
    Rank,
    Setting,
)
from kvtax.engines.base import Plan
from kvtax.engines.stages import Stage, cut
from kvtax.engines.step_peaks import FRAGMENTATION
from kvtax.engines.transformers_generate import peaks, rules, terms
from kvtax.engines.transformers_generate.cache import Format, Held, as_kept, held, layer_bytes, recurrent_bytes
from kvtax.errors import InputError
from kvtax.terms import Notice, Term
from kvtax.units import format_bytes

NO_CONTEXT_LIMIT = 2048
MOST_REQUESTS = 2**20
LONG = 2**20


class Batch(NamedTuple):
    """A batch on one stage: what is kept, the peaks by part, and the stage."""

    stage: Stage
    requests: int
    beams: int
    kept: Held
    """Of one sequence [bytes]."""
    peaks: dict[str, int]
    memory: Memory
    max_model_len: int


class TransformersPlan(Plan):
    """generate() of transformers, one batch at a time.

    Args:
        question: names resolved.
    """

    NAME = "transformers"
    GGUF = "floats"  # huggingface/transformers modeling_gguf_pytorch_utils.py
    NEWEST = rules.NEWEST
    OLDEST = rules.OLDEST
    RULES = rules.RULES
    CHECKED = "caches that transformers 5.24 made of 341 configs, equal to the byte"
    LABELS: ClassVar[dict[str, str]] = {
        "kv_pool": "cache",
        "activation": "a step",
        "cuda_graphs": "CUDA graphs",
        "runtime": "runtime",
    }
    ALLOCATES = True
    FIELDS = frozenset((
        "tensor_parallel_size", "pipeline_parallel_size", "max_num_batched_tokens", "cache_implementation", "attn_implementation",
        "cache_bits", "num_beams",
    ))  # fmt: skip

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        deployment, architecture = question.deployment, question.architecture
        runs_in = str(rules.rule("float32_runs_in", self.version))
        if deployment.dtype is None and runs_in == "float32" and architecture.quantization is None:
            dtype, origin = "float32", "transformers 4.x: without torch_dtype weights are cast to float32"
            hint = "pass torch_dtype, and say so with --dtype bfloat16"
            self.notices.append(Notice("loads-float32", f"{self.label} loads in float32 unless told otherwise", hint))
        else:
            dtype, origin = running.resolve_dtype(deployment, architecture, float32_runs_in="float32", engine=self.NAME)
        self.settings["dtype"] = self.settings["kv_cache_dtype"] = Setting(dtype, origin)
        self._settle()
        self.refusal = running.refusal(deployment, architecture, question.gpu, "")
        self.beams = int(self.settings["num_beams"].value)
        cards = (deployment.gpu_count or 1) // deployment.tensor_parallel_size
        stages = max(deployment.pipeline_parallel_size, min(cards, architecture.num_hidden_layers), 1)
        spread = deployment._replace(pipeline_parallel_size=stages)
        self.stages = [
            stage._replace(caches=tuple(self._as_kept(cache) for cache in stage.caches))
            for stage in cut(architecture, spread, dtype, tp=deployment.tensor_parallel_size, dp=1)
        ]
        self.expanded_width = self._expanded_width()
        compressed = rules.rule("latent", self.version) == "compressed"
        self.form = Format(
            dtype,
            str(self.settings["cache_implementation"].value),
            int(self.settings["cache_bits"].value),
            0 if compressed else self.expanded_width,
        )

    def _settle(self) -> None:
        deployment = self.question.deployment
        asked = rules.cache_name(deployment.cache_implementation) if deployment.cache_implementation else None
        if asked not in (None, *rules.CACHES):
            hint = ", ".join(rules.CACHES)
            raise InputError(
                f"cache {asked!r:.64} is not known", code="unknown-name", hint=hint, where="cache_implementation"
            )
        if asked is None and deployment.cache_bits is not None:
            asked = "quantized"
        if deployment.cache_bits is not None and (deployment.cache_bits not in (1, 2, 3, 4, 8) or asked != "quantized"):
            message = "is for a quantised cache, and one of 2, 4 and 8 (HQQ: 1 to 4 and 8)"
            raise InputError(message, code="invalid-quantity", where="cache_bits")
        self.set_from("cache_implementation", asked, "dynamic")
        self.set_from("cache_bits", deployment.cache_bits, rules.DEFAULT_BITS)
        kernels = deployment.attn_implementation.lower() if deployment.attn_implementation else None
        if kernels not in (None, *rules.ATTENTIONS):
            hint = ", ".join(rules.ATTENTIONS)
            raise InputError(
                f"attention {kernels!r:.64} is not known", code="unknown-name", hint=hint, where="attn_implementation"
            )
        self.set_from("attn_implementation", kernels, "sdpa")
        self.set_from("num_beams", deployment.num_beams, 1)
        self.settings["max_num_seqs"] = Setting(1, "as many as fit")
        self.settings["max_num_batched_tokens"] = Setting(0, "the whole prompt")
        message = "every sequence of a batch is padded to the longest, and the prompt is taken to fill the context: shorter ones need less"
        self.notices.append(
            Notice(
                "padded-to-longest", message, "lower --context, or take the prompt in parts: --max-num-batched-tokens"
            )
        )
        if any(
            tensor.component in ("vision", "audio") and tensor.loaded for tensor in self.question.architecture.tensors
        ):
            message = "the peak of the vision or audio encoder is not counted: its weights are, its activations are not"
            self.notices.append(Notice("encoder-peak-left-out", message))
        message = "what a step needs is worked out from the shapes of its tensors: the allocator may hold more"
        self.notices.append(Notice("step-estimated", message, "leave a tenth of the card free"))

    def _as_kept(self, cache: LayerCache) -> LayerCache:
        architecture, tp = self.question.architecture, self.question.deployment.tensor_parallel_size
        return as_kept(cache, architecture.model_type, architecture.num_attention_heads // tp)

    def _expanded_width(self) -> int:
        """Keys and values of all heads that one latent row is expanded to, on one rank [elements]."""
        architecture, tp = self.question.architecture, self.question.deployment.tensor_parallel_size
        latents = [cache for cache in architecture.caches if isinstance(cache, MultiHeadLatent)]
        expand = [tensor.shape[0] for tensor in architecture.tensors if tensor.name.endswith("kv_b_proj.weight")]
        if not latents or not expand:
            return 0
        return -(-(max(expand) + architecture.num_attention_heads * latents[0].qk_rope_head_dim) // tp)

    # ---- the answer ----

    def default_max_model_len(self) -> int:
        """The config's limit; 2048 where it states none [tokens]."""
        return self.question.architecture.max_position_embeddings or NO_CONTEXT_LIMIT

    def answer(self, max_model_len: int, concurrency: int | None = None) -> Answer:
        """Memory of the batch that is asked for (one request where none is), and the largest batch that fits.

        Raises:
            InputError: no tokens at all.
        """
        if max_model_len < 1:
            raise InputError("max_model_len must be at least 1", code="invalid-quantity", where="max_model_len")
        most = self._largest(max_model_len)
        batches = [self.batch(stage, concurrency or 1, max_model_len) for stage in self.stages]
        tightest = min(batches, key=lambda batch: batch.memory.unallocated_bytes)
        pool = self._pool(tightest, most)
        verdict, reason = self._judge(tightest, most)
        ranks = tuple(
            Rank(f"card {index}", batch.stage.layers, batch.memory, self._pool(batch, most), self._host(batch))
            for index, batch in enumerate(batches)
        )
        prompt = self._prompt_tokens(max_model_len)
        slots = max(most, concurrency or 1)
        several = ranks if len(ranks) > 1 else ()
        host = self._host(tightest)
        return Answer(tightest.memory, pool, verdict, reason, slots, prompt, host=host, ranks=several, detail=tightest)

    def _judge(self, batch: Batch, most: int) -> tuple[str, Notice | None]:
        if self.refusal is not None:
            return REFUSED, self.refusal
        memory, free = batch.memory, self.free_bytes(batch.memory)
        need = memory.weights_bytes + memory.loading_bytes
        if need > free:
            message = f"loading needs {format_bytes(need)}, and {format_bytes(free)} are free"
            return OUT_OF_MEMORY, Notice(
                "out-of-memory", message, "use fewer bits, a larger card, or several (--gpu-count)"
            )
        if most < 1:
            one = self.batch(batch.stage, 1, batch.max_model_len)
            name = max(one.peaks, key=lambda key: one.peaks[key])
            message = (
                f"weights fit, but one request of {batch.max_model_len} tokens needs {format_bytes(one.memory.kv_pool_bytes)} for its cache "
                f"and {format_bytes(one.memory.activation_bytes)} for a step ({name})"
            )
            hint = "lower --context, take the prompt in parts (--max-num-batched-tokens), or --attn-implementation flash_attention_2"
            return OUT_OF_MEMORY, Notice("out-of-memory", message, hint)
        return FITS, None

    def _largest(self, max_model_len: int) -> int:
        """The largest batch that fits every card, by bisection: what a batch needs grows with it."""
        low, high = 0, 1
        while high <= MOST_REQUESTS and self._fits(high, max_model_len):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(middle, max_model_len):
                low = middle
            else:
                high = middle
        return low

    def _fits(self, requests: int, max_model_len: int) -> bool:
        for stage in self.stages:
            memory = self.batch(stage, requests, max_model_len).memory
            loading = memory.weights_bytes + memory.outside_bytes + memory.loading_bytes
            if memory.unallocated_bytes < 0 or loading > memory.total_bytes:
                return False
        return True

    def _prompt_tokens(self, max_model_len: int) -> int:
        chunk = self.question.deployment.max_num_batched_tokens
        return max_model_len if chunk is None else min(chunk, max_model_len)

    def batch(self, stage: Stage, requests: int, max_model_len: int) -> Batch:
        """A batch of requests of max_model_len tokens on one stage."""
        deployment, architecture, total = (
            self.question.deployment,
            self.question.architecture,
            self.question.total_bytes,
        )
        tp = deployment.tensor_parallel_size
        step = peaks.Step(
            requests * self.beams,
            self._prompt_tokens(max_model_len),
            max_model_len,
            str(self.settings["attn_implementation"].value),
            bool(rules.rule("last_logits", self.version)),
        )
        parts = peaks.peaks(architecture, stage.caches, tp, step, self.form, self.expanded_width)
        activation = int(max(parts.values()) * FRAGMENTATION // 1)
        kept = held(stage.caches, max_model_len, self.form)
        weights = deployment.weights_bytes if deployment.weights_bytes is not None else stage.weights_bytes
        outside = running.outside_bytes(self.question.gpu, tp, total, deployment.free_memory)
        pool = step.sequences * kept.device_bytes
        memory = Memory(total, total, weights, 0, 0, outside, activation, 0, pool, self._loading_bytes())
        return Batch(stage, requests, self.beams, kept, parts, memory, max_model_len)

    def _loading_bytes(self) -> int:
        """What quantising on the way to the card needs: the largest linear weight in 16 bit [bytes]."""
        architecture = self.question.architecture
        if getattr(architecture.quantization, "method", None) != "bitsandbytes":
            return 0
        return 2 * max(
            (numel(tensor.shape) for tensor in architecture.tensors if tensor.linear and tensor.loaded), default=0
        )

    def _pool(self, batch: Batch, most: int) -> Pool:
        request = self.beams * batch.kept.device_bytes
        return Pool(1, 0, 0, 0, most * batch.max_model_len, float(most), request, 0)

    def _host(self, batch: Batch) -> Host:
        return Host(kv_bytes=batch.requests * self.beams * batch.kept.host_bytes)

    # ---- what a request holds ----

    def recurrent_bytes(self, cache: Recurrent) -> int:
        """Bytes of one sequence's state in one layer on one rank [bytes]."""
        return recurrent_bytes(cache, self.form.dtype)

    def request_bytes(self, tokens: int) -> int:
        """Bytes that one request of `tokens` tokens holds on one rank of all stages together, beams and offloaded layers included."""
        return self.beams * sum(peaks.sequence_bytes(stage.caches, tokens, self.form) for stage in self.stages)

    def growth_bytes(self, at: int | None = None) -> int:
        """What one more token adds on one rank (`at=None`: on the average of a long request) [bytes]."""
        if at is None:
            return (self.request_bytes(2 * LONG) - self.request_bytes(LONG)) // LONG
        return self.request_bytes(at) - self.request_bytes(at - 1) - (self.state_bytes() if at == 1 else 0)

    def state_bytes(self) -> int:
        """Fixed recurrent state of one request on one rank [bytes]."""
        caches = [cache for stage in self.stages for cache in stage.caches if isinstance(cache, Recurrent)]
        return self.beams * sum(layer_bytes(cache, 0, self.form) for cache in caches)

    # ---- terms ----

    def terms(self, answer: Answer) -> list[Term]:
        """Weights by component, what a batch allocates, and what a request holds."""
        return terms.all_terms(self, answer.detail)

    def figures(self, answer: Answer) -> list[Term]:
        """Nothing is counted in blocks."""
        return []

    def kind(self) -> str:
        """The kind of case, by which residuals of real starts are gathered."""
        return f"transformers {self.settings['cache_implementation'].value}"

    @property
    def element_bytes(self) -> int:
        """Of the model's dtype [bytes]."""
        return find_dtype(self.form.dtype).bits // 8
