"""The answer: where the memory of the tightest rank goes, how many requests fit, and the verdict."""

from __future__ import annotations

from typing import Any

from kvtax.deployment import Deployment
from kvtax.engines.answer import FITS, KV_TOO_SMALL, Answer, Host, Memory, Pool, Rank, Setting
from kvtax.formulas.roofline import compute_bound_batch
from kvtax.hardware.gpu import Gpu
from kvtax.prepared import Prepared
from kvtax.sources.models import catalogue_date
from kvtax.sources.resolve import Model
from kvtax.terms import Notice, Term
from kvtax.version import __version__

SCHEMA = "kvtax.budget/1"
TYPICAL_REQUEST_TOKENS = 1366
"""Prompt and output of a mean request: 1,155 + 211 tokens in the Azure LLM conversation trace of 2023 (CC-BY 4.0, 19,366 requests)."""
COVERAGE = 0.9


class Budget:
    """Where the memory of the tightest rank goes, and how many requests fit.

    Attributes:
        deployment: what was asked, defaults filled in.
        memory: how the memory is divided [bytes].
        pool: the KV pool as the engine counts it.
        verdict: fits | over_budget | kv_too_small | out_of_memory | refused.
        max_concurrency: requests of max_model_len that the pool holds, as the engine prints it.
        notices: what the reader should know.
        extra_notices: what the caller adds to them (how a size on a command line was read).
    """

    def __init__(self, prepared: Prepared, max_model_len: int | None, concurrency: int | None) -> None:
        plan = prepared.plan
        self.prepared = prepared
        self.max_model_len = plan.default_max_model_len() if max_model_len is None else max_model_len
        self.max_model_len_given = max_model_len is not None
        self.concurrency = concurrency
        self.extra_notices: tuple[Notice, ...] = ()
        self.answer: Answer = plan.answer(self.max_model_len, concurrency)
        self.memory: Memory = self.answer.memory
        self.pool: Pool = self.answer.pool
        self.max_num_seqs, self.max_num_batched_tokens = self.answer.max_num_seqs, self.answer.max_num_batched_tokens
        self.max_concurrency = self.pool.max_concurrency if prepared.engine_known else self._plain_concurrency()
        self.verdict = self._judge()

    # ---- what it is about ----

    @property
    def deployment(self) -> Deployment:
        """The deployment with its length and number of requests."""
        return self.prepared.deployment._replace(max_model_len=self.max_model_len, concurrency=self.concurrency)

    @property
    def asked(self) -> dict[str, Any]:
        """The fields that are not left to a default, as they were given: a budget made of them is this one."""
        asked = self.prepared.deployment
        length = self.max_model_len if self.max_model_len_given else None
        fields = asked._replace(max_model_len=length, concurrency=self.concurrency)._asdict()
        defaults = Deployment._field_defaults
        return {name: value for name, value in fields.items() if name == "engine" or value != defaults[name]}

    @property
    def model(self) -> Model:
        """The model that was found."""
        return self.prepared.model

    @property
    def gpu(self) -> Gpu:
        """The card that was found."""
        return self.prepared.gpu

    # ---- memory ----

    @property
    def weights_bytes(self) -> int:
        """Parameters with their scales on this rank [bytes]."""
        return self.memory.weights_bytes

    @property
    def kv_pool_bytes(self) -> int:
        """What the engine leaves for KV: signed, never clamped [bytes]."""
        return self.memory.kv_pool_bytes if self.prepared.engine_known else self.free_bytes - self.memory.weights_bytes

    @property
    def runtime_bytes(self) -> int:
        """What else the engine needs: context and communicators, rope caches, workspaces [bytes]."""
        return self.memory.runtime_bytes

    @property
    def unallocated_bytes(self) -> int:
        """total - weights - activation - graphs - runtime - pool: what nobody takes; negative where the card is overdrawn [bytes]."""
        if not self.prepared.engine_known:
            return 0
        return self.memory.unallocated_bytes

    @property
    def free_bytes(self) -> int:
        """What the engine sees free when it starts to load [bytes]."""
        return self.prepared.plan.free_bytes(self.memory)

    @property
    def host(self) -> Host:
        """What the engine keeps in RAM [bytes]."""
        return self.answer.host

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """Every rank where they differ; the tightest one is the budget's own."""
        return self.answer.ranks

    @property
    def prints(self) -> tuple[str, ...]:
        """The lines about capacity that the engine itself prints at start, where it starts."""
        if not self.prepared.engine_known or self.verdict not in (FITS, "over_budget"):
            return ()
        return tuple(self.prepared.plan.prints(self.answer, self.max_model_len))

    @property
    def per_gpu(self) -> dict[str, int]:
        """total = weights + activation + cuda_graph + runtime + kv_pool + unallocated, and what goes with them: as in the JSON [bytes]."""
        memory, known = self.memory, self.prepared.engine_known
        return {
            "total_bytes": memory.total_bytes,
            "limit_bytes": memory.limit_bytes if known else memory.total_bytes,
            "weights_bytes": memory.weights_bytes,
            "model_load_bytes": memory.weights_bytes + memory.load_extra_bytes,
            "activation_bytes": memory.activation_bytes if known else 0,
            "cuda_graph_bytes": memory.cuda_graph_bytes if known else 0,
            "runtime_bytes": self.runtime_bytes if known else memory.outside_bytes,
            "kv_pool_bytes": self.kv_pool_bytes,
            "kv_demand_bytes": self.kv_demand_bytes,
            "unallocated_bytes": self.unallocated_bytes,
            "loading_bytes": memory.loading_bytes,
        }

    # ---- KV ----

    @property
    def kv_bytes_per_token(self) -> int:
        """Pool over the tokens that the engine prints, to the nearest byte; what one more token adds where it prints none [bytes]."""
        if self.pool.bytes_per_token and self.prepared.engine_known:
            return self.pool.bytes_per_token
        return self.live_bytes_per_token

    @property
    def live_bytes_per_token(self) -> int:
        """What one more token adds on this rank once every window is full [bytes]."""
        return self.prepared.plan.growth_bytes()

    @property
    def early_bytes_per_token(self) -> int:
        """What one more token adds on this rank before any window is full [bytes]."""
        return self.prepared.plan.growth_bytes(1)

    @property
    def live_bytes_per_request(self) -> int:
        """What one request of max_model_len really holds on this rank, windows and state as they are [bytes]."""
        return self.prepared.request_bytes(self.max_model_len)

    @property
    def kv_bytes_per_request(self) -> int:
        """What the engine sets aside for one request of max_model_len, in whole blocks [bytes]."""
        if not self.prepared.engine_known:
            return self.live_bytes_per_request
        return self.pool.request_bytes

    @property
    def state_bytes_per_request(self) -> int:
        """Fixed recurrent state of one request on this rank [bytes]."""
        return self.prepared.plan.state_bytes()

    @property
    def kv_demand_bytes(self) -> int:
        """What `concurrency` requests of max_model_len hold (one, where none is asked) [bytes]."""
        return self.kv_bytes_per_request * (self.concurrency or 1)

    @property
    def capacity_tokens(self) -> int:
        """Tokens that the pool holds, as the engine counts them."""
        if self.prepared.engine_known:
            return self.pool.capacity_tokens
        return int(self.max_concurrency * self.max_model_len)

    @property
    def fits(self) -> bool:
        """Whether it starts and carries what was asked for: one request of max_model_len where nothing was."""
        return self.verdict == "fits"

    # ---- figures for people ----

    @property
    def naive_waste_share(self) -> float:
        """Share of the KV memory that a server which reserves max_model_len for every request leaves unused on requests of typical length."""
        reserved = self.live_bytes_per_request
        if reserved <= 0:
            return 0.0
        return 1 - self.prepared.request_bytes(min(TYPICAL_REQUEST_TOKENS, self.max_model_len)) / reserved

    @property
    def crossover_tokens(self) -> int | None:
        """Tokens in flight from which KV outweighs the weights on this rank; None where KV does not grow."""
        held = self.kv_bytes_per_request if self.ranks else self.live_bytes_per_request
        return -(-self.memory.weights_bytes * self.max_model_len // held) if held > 0 else None

    @property
    def compute_bound_batch(self) -> float | None:
        """Batch at which decoding would become compute-bound if KV were free to read; None where the card's figures are not known."""
        gpu = self.prepared.gpu
        if not gpu.bf16_flops or not gpu.bandwidth_bytes_per_second:
            return None
        active = self.prepared.architecture.active_parameters // self.prepared.deployment.tensor_parallel_size
        return compute_bound_batch(
            self.memory.weights_bytes, 0, max(active, 1), gpu.bf16_flops, gpu.bandwidth_bytes_per_second
        )

    def longest_context(self) -> int:
        """The longest max_model_len of which a request fits (0: none), found by bisection up to the config's limit.

        Source: vllm 0.33.0 estimates it in the same way when it refuses.
        """
        low, high = 0, self.prepared.plan.default_max_model_len()
        while low < high:
            middle = (low + high + 1) // 2
            # an engine that starts whatever the length is over budget where the pool holds no such request
            if Budget(self.prepared, middle, None).verdict == "fits":
                low = middle
            else:
                high = middle - 1
        return low

    # ---- verdict ----

    def _plain_concurrency(self) -> float:
        """Without an engine's rule: how many requests' live bytes the rest of the card holds."""
        room = self.free_bytes - self.memory.weights_bytes
        need = self.live_bytes_per_request
        return max(room, 0) / need if need else float(room > 0)

    def _judge(self) -> str:
        verdict = self.answer.verdict
        if not self.prepared.engine_known and verdict in (FITS, KV_TOO_SMALL):
            verdict = FITS if self.max_concurrency >= 1 else KV_TOO_SMALL
        if verdict == FITS and self.concurrency is not None and self.concurrency > self.max_concurrency:
            return "over_budget"
        return verdict

    @property
    def interval(self) -> dict[str, Any]:
        """The range that holds 90 % of real starts: pool and concurrency."""
        margin = self.prepared.plan.margin()
        pool, total = self.kv_pool_bytes, self.memory.total_bytes
        need = self.kv_bytes_per_request
        bounds = [pool + int(margin.low * total), pool + int(margin.high * total)]
        if not self.prepared.engine_known:
            bounds = [min(pool, 0), pool]
        if pool == 0 and not need:  # nothing is kept: the requests are those that the engine lets run
            bounds, requests = [0, 0], [self.max_concurrency, self.max_concurrency]
        elif pool > 0 and self.max_concurrency > 0:  # the engine's own count, in proportion
            requests = [max(bound, 0) * self.max_concurrency / pool for bound in bounds]
        else:
            requests = [max(bound, 0) / need if need else self.max_concurrency for bound in bounds]
        return {"coverage": COVERAGE, "kv_pool_bytes": bounds, "max_concurrency": requests}

    # ---- terms, notices, forms ----

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every number in bytes with its formula, inputs, origins and source."""
        return tuple(self.prepared.plan.terms(self.answer))

    @property
    def figures(self) -> tuple[Term, ...]:
        """Blocks and concurrency in the same form."""
        return tuple(self.prepared.plan.figures(self.answer))

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What the reader should know, the reason of a refusal first."""
        found = [] if self.answer.reason is None else [self.answer.reason]
        found += self.prepared.notices
        limit = self.prepared.architecture.max_position_embeddings
        if limit is not None and self.max_model_len > limit:
            found.append(
                Notice(
                    "context-above-limit",
                    f"max_model_len {self.max_model_len} is above the {limit} tokens of the config",
                    "the engine refuses it unless told otherwise (VLLM_ALLOW_LONG_MAX_MODEL_LEN)",
                )
            )
        if self.concurrency is not None and self.concurrency > self.max_num_seqs:
            found.append(
                Notice(
                    "slots-limit",
                    f"max_num_seqs {self.max_num_seqs} lets fewer requests run than the {self.concurrency} asked for",
                    f"--max-num-seqs {self.concurrency}",
                )
            )
        return (*found, *self.extra_notices)

    def settings(self) -> dict[str, Setting]:
        """What the engine uses, given or by default."""
        found = dict(self.prepared.plan.settings)
        if self.max_model_len_given:
            found["max_model_len"] = Setting(self.max_model_len, "flag")
        else:
            stated = self.prepared.architecture.max_position_embeddings is not None
            found["max_model_len"] = Setting(self.max_model_len, "config.json" if stated else "default of the engine")
        found["max_num_seqs"] = found["max_num_seqs"]._replace(value=self.max_num_seqs)
        found["max_num_batched_tokens"] = found["max_num_batched_tokens"]._replace(value=self.max_num_batched_tokens)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (schema kvtax.budget/1)."""
        from kvtax.views.json_form import budget_to_dict

        return budget_to_dict(self)

    def explain(self) -> str:
        """Every number with its formula, the numbers put in, the result and where each input comes from."""
        from kvtax.views.explain import explain

        return explain(self)

    def _repr_html_(self) -> str:
        from kvtax.views.html import budget_to_html

        return budget_to_html(self)

    def __repr__(self) -> str:
        """One line: model, card, verdict."""
        return f"<Budget {self.model.id} on {self.gpu.id}: {self.verdict}, {self.max_concurrency:.2f} x {self.max_model_len} tokens>"


def catalogue_stamp() -> dict[str, str]:
    """Version of kvtax and date of the catalogue, as they stand in every JSON."""
    return {"kvtax": __version__, "catalogue": catalogue_date()}
