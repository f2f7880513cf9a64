"""llama.cpp's answer to one deployment: what llama-server allocates, card by card."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from kvtax.architectures.cache import Recurrent
from kvtax.architectures.gguf import traits
from kvtax.architectures.gguf.shape import Shape
from kvtax.engines.answer import (
    FITS,
    KV_TOO_SMALL,
    OUT_OF_MEMORY,
    REFUSED,
    Answer,
    Pool,
    Question,
    Rank,
    Setting,
    pool_bytes_per_token,
)
from kvtax.engines.base import Plan, Version, find_rule
from kvtax.engines.llama_cpp import budgeting, cache, compute, rules, settle, terms
from kvtax.engines.llama_cpp.budgeting import Load, Machine
from kvtax.engines.llama_cpp.cache import Context
from kvtax.engines.llama_cpp.machine import make_machine
from kvtax.engines.llama_cpp.weights import File, plain_file, real_file
from kvtax.terms import Notice, Term
from kvtax.units import format_bytes

AUTO_SLOTS = 4
"""Slots of llama-server where -np is not given; they share one cache."""
LEAST_FIT_CONTEXT = 4096
"""--fit-ctx: --fit lowers a context that is not set no further [tokens]."""
NO_CONTEXT_LIMIT = 4096
FIELDS = frozenset((
    "n_ctx", "n_parallel", "n_batch", "n_ubatch", "n_outputs_max", "n_rs_seq", "kv_unified", "cache_type_k", "cache_type_v", "flash_attn",
    "n_gpu_layers", "n_cpu_moe", "cpu_moe", "tensor_split", "split_mode", "swa_full", "kv_offload", "fit", "mmproj_bytes", "max_num_seqs",
    "max_num_batched_tokens", "kv_cache_dtype",
))  # fmt: skip


class Detail(NamedTuple):
    """What the terms of an answer are made from."""

    context: Context
    machine: Machine
    load: Load
    max_model_len: int


class LlamaCppPlan(Plan):
    """llama-server on one or several cards.

    Args:
        question: names resolved.
    """

    NAME = "llama.cpp"
    NEWEST = rules.NEWEST
    OLDEST = rules.OLDEST
    RULES = rules.RULES
    CHECKED = "3,269 contexts and 1,248 presets that llama.cpp b11434 reported: caches and weights equal to the byte"
    ALLOCATES = True
    GGUF = "kept"
    OWN_QUANTIZATION = True
    LABELS: ClassVar[dict[str, str]] = {
        "kv_pool": "KV cache",
        "activation": "compute buffer",
        "cuda_graphs": "CUDA graphs",
        "runtime": "runtime",
    }
    FIELDS = FIELDS

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        deployment = question.deployment
        self.asked = settle.read_asked(deployment)
        if self.asked.fit and not self.rule("fit"):
            self.asked = self.asked._replace(fit=False)
            self.notices.append(Notice("no-fit", f"{self.label} does not fit what is not set: it loads as it is told"))
        self.shape, self.file = self._read_file()
        self.era = compute.Era(
            int(self.rule("mask_bytes")),
            int(self.rule("inputs_of_hidden_size")),
            bool(self.rule("copy_in_compute_buffer")),
        )
        self.refusal = settle.refusal(question.gpu, self.shape, self.asked)
        self.machine = make_machine(question, self.shape, self.asked)
        self._settle()
        self._say()

    def _read_file(self) -> tuple[Shape, File]:
        """The file that is loaded: the one at hand, or the one that a plain conversion of the checkpoint makes."""
        deployment, architecture = self.question.deployment, self.question.architecture
        if architecture.gguf is not None:
            return architecture.gguf.shape, real_file(architecture.gguf)
        fused = bool(self.rule("fused_qkv_is_value"))
        return plain_file(architecture, deployment.quantization, deployment.dtype, fused)

    # ---- versions ----

    @classmethod
    def version_words(cls, version: Version) -> str:
        """A build: `b11434`."""
        return f"b{version[0]}"

    @property
    def build(self) -> tuple[int, ...]:
        """The llama.cpp build that runs."""
        return self.version

    def rule(self, name: str) -> int | bool:
        """The value of a rule in this build."""
        value: int | bool = find_rule(rules.RULES, name, self.build)
        return value

    # ---- settings ----

    def _settle(self) -> None:
        deployment = self.question.deployment
        slots, unified = self.slots(None)
        self.settings["dtype"] = Setting(self.file.preset, self.file.origin)
        self.set_from("max_num_seqs", self.asked.n_parallel, slots)
        self.set_from("n_parallel", self.asked.n_parallel, slots)
        self.set_from("kv_unified", deployment.kv_unified, unified)
        batch, ubatch = self.default_batches(self.default_max_model_len())
        self.set_from("n_batch", deployment.n_batch, batch)
        self.set_from("max_num_batched_tokens", self.asked.n_ubatch, ubatch)
        self.set_from("cache_type_k", deployment.cache_type_k or deployment.kv_cache_dtype, "f16")
        self.set_from("cache_type_v", deployment.cache_type_v or deployment.kv_cache_dtype, "f16")
        kinds = {self.asked.cache_type_k, self.asked.cache_type_v}
        self.settings["kv_cache_dtype"] = Setting("/".join(sorted(kinds)), self.settings["cache_type_k"].origin)
        self.set_from("flash_attn", deployment.flash_attn, "auto")
        self.set_from("swa_full", deployment.swa_full or None, self.default_swa_full())
        self.set_from("n_gpu_layers", deployment.n_gpu_layers, "all")
        if deployment.n_ctx is not None:
            self.set_from("n_ctx", deployment.n_ctx, deployment.n_ctx)

    def _say(self) -> None:
        deployment, architecture = self.question.deployment, self.question.architecture
        if deployment.weights_bytes is None and architecture.gguf is None:
            message = (
                f"weights are those of a plain llama-quantize {self.file.preset}, without importance matrix: "
                f"a file of {format_bytes(self.file.file_bytes)}; publishers' own mixes differ"
            )
            self.notices.append(
                Notice("gguf-preset", message, "give the buffer that llama.cpp prints: --weights-bytes")
            )
        towers = any(tensor.component in ("vision", "audio") for tensor in architecture.tensors)
        if towers and not deployment.mmproj_bytes:
            message = "the projector (mmproj) is a file of its own and is not counted, nor is its compute buffer"
            self.notices.append(Notice("no-mmproj", message, "give its size: --mmproj-bytes"))
        if deployment.mmproj_bytes:
            self.notices.append(Notice("mmproj-compute", "the projector's compute buffer is not known and not counted"))
        if self.asked.split_mode in ("row", "tensor") and len(self.machine.cards) > 1:
            self.notices.append(
                Notice("split-is-even", f"split mode {self.asked.split_mode}: the cut is taken as exact")
            )
        if self.shape.arch in traits.COMPRESSED:
            self.notices.append(
                Notice("not-measured", f"no context of {self.shape.arch} was compared with llama.cpp's own figures")
            )

    # ---- what the programs that run llama.cpp decide in their own way ----

    def slots(self, concurrency: int | None) -> tuple[int, bool]:
        """Slots, and whether they share one cache: four that do where -np is not given and as many requests are asked for."""
        deployment = self.question.deployment
        given = self.asked.n_parallel
        if given is not None:
            return given, bool(deployment.kv_unified)
        if not self.rule("unified_by_default"):
            return max(concurrency or 1, 1), bool(deployment.kv_unified)
        if concurrency is not None and concurrency > AUTO_SLOTS:
            return min(concurrency, 4096), bool(deployment.kv_unified)
        return AUTO_SLOTS, deployment.kv_unified is not False

    def default_batches(self, max_model_len: int) -> tuple[int, int]:
        """-b and -ub where they are not given [tokens]."""
        return 2048, 512

    def default_swa_full(self) -> bool:
        """Whether window layers keep the whole context."""
        return False

    def default_max_model_len(self) -> int:
        """The slot's part of -c where it is given, else the model's own context; --fit lowers that to what fits, but not below 4096."""
        deployment = self.question.deployment
        if deployment.n_ctx is not None:
            context = self.context(1, None)
            return min(deployment.n_ctx, context.n_ctx_seq)
        limit = self.question.architecture.max_position_embeddings or NO_CONTEXT_LIMIT
        if not self.asked.fit or limit <= LEAST_FIT_CONTEXT:
            return limit
        low, high = LEAST_FIT_CONTEXT // 256, limit // 256
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._keeps_margin(256 * middle) else (low, middle - 1)
        return limit if low == limit // 256 else 256 * low

    def _keeps_margin(self, max_model_len: int) -> bool:
        found = self._load(self.context(max_model_len, None), self.machine)
        return found.tightest.memory.unallocated_bytes >= budgeting.FIT_MARGIN_BYTES

    # ---- the answer ----

    def context(self, max_model_len: int, concurrency: int | None) -> Context:
        """The context that carries `concurrency` requests of max_model_len (one, where none is asked), or that -c makes."""
        deployment = self.question.deployment
        slots, unified = self.slots(concurrency)
        padding = int(self.rule("cells_padding"))
        wanted = min(concurrency or 1, slots)
        n_ctx = deployment.n_ctx
        if n_ctx is None:
            n_ctx = max_model_len * wanted if unified else cache.pad(max_model_len, padding) * slots
        batch, ubatch = self.default_batches(max_model_len)
        refused = self.refusal is not None
        outputs = deployment.n_outputs_max
        if outputs is None:
            outputs = slots if self.rule("outputs_per_slot") else None
        return Context(
            n_ctx=n_ctx,
            n_parallel=slots,
            n_batch=deployment.n_batch or batch,
            n_ubatch=self.asked.n_ubatch or ubatch,
            kv_unified=unified,
            flash_attn=self.asked.flash_attn,
            cache_type_k="f16" if refused else self.asked.cache_type_k,
            cache_type_v="f16" if refused else self.asked.cache_type_v,
            swa_full=deployment.swa_full or self.default_swa_full(),
            n_rs_seq=deployment.n_rs_seq or 0,
            n_outputs_max=outputs,
            cells_padding=padding,
            latent_keys_only=bool(self.rule("latent_keys_only")),
            kv_offload=self.machine.kv_offload,
        )

    def _load(self, context: Context, machine: Machine) -> Load:
        given = self.question.deployment.weights_bytes
        return budgeting.load(self.shape, self.file.weights, context, machine, self.era, given)

    def answer(self, max_model_len: int, concurrency: int | None) -> Answer:
        """What is allocated on the tightest card; every card as a rank where there are several."""
        context, machine = self.context(max_model_len, concurrency), self.machine
        if self.asked.fit and self.refusal is None:
            given = self.question.deployment.weights_bytes
            machine = budgeting.fitted(self.shape, self.file.weights, context, machine, self.era, given)
        found = self._load(context, machine)
        tightest = found.tightest
        pools = [self._pool(context, device, max_model_len) for device in found.devices]
        ranks = tuple(
            Rank(
                f"card {device.card} {machine.cards[device.card].gpu.id}",
                len(device.share.layers),
                device.memory,
                pool,
            )
            for device, pool in zip(found.devices, pools, strict=True)
        )
        pool = pools[tightest.card]
        verdict, reason = self._judge(found, machine, pool, context, max_model_len)
        return Answer(
            memory=tightest.memory,
            pool=pool,
            verdict=verdict,
            reason=reason,
            max_num_seqs=context.n_parallel,
            max_num_batched_tokens=context.ubatch,
            host=found.host,
            ranks=ranks if len(ranks) > 1 else (),
            detail=Detail(context, machine, found, max_model_len),
        )

    def _pool(self, context: Context, device: budgeting.Device, max_model_len: int) -> Pool:
        """The cache in llama.cpp's own units: cells, of which a request takes one for each token."""
        cells = context.n_ctx_effective
        if max_model_len > context.n_ctx_seq:
            carried = 0
        elif context.kv_unified:
            carried = min(context.n_parallel, cells // max_model_len)
        else:
            carried = context.n_parallel
        pool = device.kv_bytes + device.state_bytes
        per_request = pool // carried if carried else pool
        if context.kv_unified and carried:
            live = cache.live_request_bytes(self.shape, context, max_model_len, device.share.layers)
            per_request = min(per_request, live) if self.machine.kv_offload else 0
        per_token = pool_bytes_per_token(1, pool, cells)
        return Pool(1, per_token, cells, max_model_len, cells, float(carried), per_request, per_token)

    def _judge(
        self, found: Load, machine: Machine, pool: Pool, context: Context, max_model_len: int
    ) -> tuple[str, Notice | None]:
        """The verdict, and why where it is not a plain fit."""
        if self.refusal is not None:
            return REFUSED, self.refusal
        left = found.tightest.memory.unallocated_bytes
        if left < 0:
            where = machine.cards[found.tightest.card].gpu.name
            return OUT_OF_MEMORY, Notice(
                "out-of-memory",
                f"{format_bytes(-left)} more than {where} has are to be allocated",
                "a shorter context, a smaller preset, or layers in RAM: --n-gpu-layers auto (--fit) does as llama-server would",
            )
        if pool.max_concurrency < 1:
            return KV_TOO_SMALL, Notice(
                "context-too-small",
                f"a slot has {context.n_ctx_seq} tokens, a request of {max_model_len} does not fit in",
                f"--ctx-size {max_model_len * (1 if context.kv_unified else context.n_parallel)}",
            )
        if machine != self.machine:
            spared, units = machine.experts_in_ram, machine.n_gpu_layers
            message = f"--fit lowers what was not set: -ngl {units}" + (f", --n-cpu-moe {spared}" if spared else "")
            return FITS, Notice("fitted", message, "what is in RAM runs on the processor: expect it to be slow")
        return FITS, None

    # ---- live bytes ----

    def _fullest(self) -> tuple[int, ...]:
        """The blocks on the card that has most of them."""
        shares = budgeting.shares_of(self.machine, self.file.weights)
        return max((share.layers for card, share in shares.items() if card >= 0), key=len, default=())

    def request_bytes(self, tokens: int) -> int:
        """Bytes that one request of `tokens` tokens fills on the card with most layers."""
        if not self.machine.kv_offload:
            return 0
        return cache.live_request_bytes(self.shape, self.context(max(tokens, 1), None), tokens, self._fullest())

    def growth_bytes(self, at: int | None = None) -> int:
        """What one more token adds on that card (`at=None`: past every window and on the average of compressed rows) [bytes]."""
        if at is not None:
            began = self.state_bytes() if at == 1 else 0  # comes with the first token, and is no part of it
            return self.request_bytes(at) - self.request_bytes(at - 1) - began
        ratio = max((layer.compress_ratio for layer in self.shape.layers), default=0) or 1
        start = (self.shape.sliding_window // ratio + 1) * ratio
        return (self.request_bytes(start + ratio) - self.request_bytes(start)) // ratio

    def state_bytes(self) -> int:
        """Fixed state of one request on that card [bytes]."""
        if not self.machine.kv_offload:
            return 0
        context = self.context(1, None)._replace(n_parallel=1)
        return sum(cache.layer_state_bytes(self.shape, self.shape.layers[index], context) for index in self._fullest())

    def recurrent_bytes(self, held: Recurrent) -> int:
        """One sequence's state in one layer, float32 [bytes]."""
        return 4 * sum(state.elements for state in held.states)

    # ---- terms ----

    def terms(self, answer: Answer) -> list[Term]:
        """Weights, caches and buffers of the tightest card, and what is in RAM."""
        return terms.all_terms(self, answer.detail)

    def figures(self, answer: Answer) -> list[Term]:
        """Cells."""
        return terms.figure_terms(answer.detail)

    def kind(self) -> str:
        """The kind of case, by which residuals of real starts are gathered."""
        if len(self.machine.cards) > 1:
            return "several cards"
        return "part in RAM" if self.machine.n_gpu_layers <= len(self.shape.layers) else "plain"

    def prints(self, answer: Answer, max_model_len: int) -> list[str]:
        """The lines that llama.cpp prints about the context."""
        return terms.printed(self.shape, answer.detail.context)
