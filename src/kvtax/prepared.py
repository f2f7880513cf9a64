"""A deployment with its names resolved and everything worked out that does not depend on the length of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.drafts import is_draft
from kvtax.deployment import Deployment
from kvtax.engines.answer import Card, Question
from kvtax.engines.registry import PLANS, gguf_bytes, gguf_loading, is_gguf_preset, make_plan, names_own_formats
from kvtax.errors import InputError, NotKnownError, UnknownNameError
from kvtax.hardware.gpu import Gpu
from kvtax.sources.gpus import find_gpu
from kvtax.sources.models import ModelEntry
from kvtax.sources.resolve import COUNTED, Model, find
from kvtax.terms import Notice

if TYPE_CHECKING:
    from kvtax.architectures.quantization import Quantization

MOST_CARDS = 64
"""Cards that may be named together."""
FEW_STARTS = 10
"""An interval that rests on fewer real starts says so."""


class Prepared:
    """Everything about a deployment but the length and number of its requests: worked out once, reused for each length.

    Args:
        deployment: without length and number.
        models: of one's own.
        gpus: of one's own.
        engine_given: False: a GGUF file is one for llama.cpp.
    """

    def __init__(
        self, deployment: Deployment, models: Sequence[ModelEntry], gpus: Sequence[Gpu], *, engine_given: bool = True
    ) -> None:
        self.model: Model = find(deployment.model, models)
        if not engine_given and self.model.architecture.gguf is not None and deployment.engine == "vllm":
            deployment = deployment._replace(engine="llama.cpp")
        self.deployment = deployment
        self.notices: list[Notice] = [notice for notice in self.model.notices if self._concerns(notice)]
        deployment = self._with_settings(deployment)
        cards = _find_cards(deployment, gpus, self.notices)
        smallest = min(cards, key=lambda card: card.total_bytes)
        self.gpu = smallest.gpu if len({card.gpu for card in cards}) == 1 else _together(cards, smallest)
        architecture = self.model.architecture
        name = deployment.quantization
        if architecture.gguf is not None:
            deployment = self._of_gguf(deployment, architecture)
        elif name and not names_own_formats(deployment.engine) and not _is_own(name, architecture.quantization):
            if is_gguf_preset(name):
                deployment = self._with_gguf(deployment, name)
            else:
                from kvtax.architectures.quantization import named_quantization

                architecture = architecture.replace(quantization=named_quantization(name, architecture))
                self._set_headers_aside(name)
        self.architecture = architecture
        deployment = self._with_adapter(deployment)
        self.question = Question(
            self._with_runner(deployment),
            architecture,
            smallest.gpu,
            smallest.total_bytes,
            smallest.total_origin,
            cards,
            self._draft(models),
        )
        self.plan = make_plan(self.question)
        self.notices += self.plan.notices
        if architecture.gguf is not None and not self.plan.GGUF:
            self.plan.refusal = self.plan.refusal or Notice(
                "gguf-not-in-engine",
                f"{deployment.engine} does not load GGUF files",
                "engines that do: " + ", ".join(filter(gguf_loading, PLANS)),
            )
        self.ranks = self.plan.cards
        self.gpu_count = max(self.ranks, len(cards)) if deployment.gpu_count is None else deployment.gpu_count
        self.engine_known = self.plan.known
        self._say_cards()
        if is_draft(architecture):
            message = "this is a draft for speculative decoding, and no model that is served alone"
            self.notices.append(
                Notice("draft-alone", message, "name it beside its target: --speculative eagle3:3:DRAFT")
            )
        self._demand: dict[int, int] = {}

    def _with_runner(self, deployment: Deployment) -> Deployment:
        """The deployment with the runner that vLLM takes by itself for a model of embeddings."""
        runner = self.model.runner
        if deployment.runner is not None or runner is None or deployment.engine != "vllm":
            return deployment
        self.notices.append(
            Notice(
                "pooling-runner",
                "the model's repository holds modules.json: vllm runs it for pooling and loads no lm_head",
                "--runner generate runs it for text",
            )
        )
        return deployment._replace(runner=runner)

    def _concerns(self, notice: Notice) -> bool:
        """Whether a notice about the model is one for this engine: a projector is counted by those that load it."""
        return notice.code != "mmproj-beside" or names_own_formats(self.deployment.engine)

    def _set_headers_aside(self, name: str) -> None:
        """Say that another checkpoint is sized than the one whose headers were read."""
        if self.model.architecture.in_files is None:
            return
        self.model = self.model._replace(weights_source=f"{COUNTED}: a checkpoint in {name}")
        message = f"the weights are those of another checkpoint, in {name}: the headers that were read do not count"
        self.notices.append(
            Notice("headers-set-aside", message, "leave --quantization out for the checkpoint as it is")
        )

    def _with_settings(self, deployment: Deployment) -> Deployment:
        """The deployment with what comes with the model (its projector, Ollama's num_ctx), where the engine has such a field."""
        projector, context = self.model.settings.get("mmproj_bytes"), self.model.settings.get("num_ctx")
        if projector and names_own_formats(deployment.engine) and deployment.mmproj_bytes is None:
            deployment = deployment._replace(mmproj_bytes=projector)
        lengths = (deployment.num_ctx, deployment.n_ctx, deployment.max_model_len)
        if context and deployment.engine == "ollama" and lengths == (None, None, None):
            self.notices.append(Notice("num-ctx", f"the model's own Modelfile sets num_ctx {context}"))
            deployment = deployment._replace(num_ctx=context)
        return deployment

    def _of_gguf(self, deployment: Deployment, architecture: Architecture) -> Deployment:
        """The deployment of a model that is a GGUF file: its formats are what they are, and other engines share them out evenly.

        Raises:
            InputError: another quantisation is asked for.
        """
        name, own = deployment.quantization, architecture.quantization
        if name and not _is_own(name.removeprefix("gguf-"), own):
            raise InputError(
                f"the model is a GGUF file in {getattr(own, 'name', '')}, not in {name!r:.64}",
                code="quantization-of-file",
                hint="leave --quantization out, or name the model itself",
                where="quantization",
            )
        deployment = deployment._replace(quantization=None)
        if deployment.weights_bytes is not None or names_own_formats(deployment.engine):
            return deployment
        ranks = deployment.tensor_parallel_size * deployment.pipeline_parallel_size
        size, message = (
            architecture.weight_bytes(),
            "the weights are those of the GGUF file, kept as they are in it and shared out evenly",
        )
        if gguf_loading(deployment.engine) == "floats":
            size, message = (
                2 * architecture.parameters,
                f"{deployment.engine} turns the weights of a GGUF file into 16 bit when it loads them",
            )
        self.notices.append(Notice("gguf-in-engine", message, "give them as the engine prints them: --weights-bytes"))
        return deployment._replace(weights_bytes=-(-size // ranks))

    def _with_adapter(self, deployment: Deployment) -> Deployment:
        """The deployment with the rank of the adapter whose folder is named."""
        if deployment.lora is None or not deployment.lora.adapter:
            return deployment
        from kvtax.engines.vllm.features import LORA_RANKS
        from kvtax.sources.adapters import with_adapter

        deployment, notices = with_adapter(deployment, LORA_RANKS, self.architecture)
        self.notices += notices
        return deployment

    def _with_gguf(self, deployment: Deployment, preset: str) -> Deployment:
        """The deployment with the weights of a GGUF file, which engines other than llama.cpp keep as they are in it."""
        if deployment.weights_bytes is not None:
            return deployment
        size = gguf_bytes(self.model.architecture, preset)
        ranks = deployment.tensor_parallel_size * deployment.pipeline_parallel_size
        self.notices.append(
            Notice(
                "gguf-in-engine",
                f"the weights are those of a plain {preset} file, kept as they are in it and shared out evenly",
                "give them as the engine prints them: --weights-bytes",
            )
        )
        return deployment._replace(weights_bytes=-(-size // ranks))

    def _draft(self, models: Sequence[ModelEntry]) -> Architecture | None:
        """The draft's own model, where speculation names one; a notice where it is not known."""
        asked = self.deployment.speculative
        if asked is None or not asked.model or asked.model == self.deployment.model:
            return None
        try:
            return find(asked.model, models).architecture
        except NotKnownError as error:
            message = f"the draft model {asked.model!r:.96} is not known: {error.message}"
            self.notices.append(Notice("draft-not-found", message, error.hint))
            return None

    def _say_cards(self) -> None:
        if self.gpu_count > self.ranks and not self.plan.ALLOCATES:
            self.notices.append(
                Notice(
                    "cards-idle",
                    f"{self.gpu_count - self.ranks} of {self.gpu_count} cards stay idle: the parallel sizes use {self.ranks}",
                    "raise --tp or --dp",
                )
            )
        if self.gpu.total_is_estimate and not self.deployment.vram:
            self.notices.append(
                Notice(
                    "gpu-total-estimated",
                    f"the memory that {self.gpu.name} reports is estimated: {self.gpu.total_source}",
                    "give the figure that the driver reports: --vram",
                )
            )
        thin = self.plan.margin()
        if self.engine_known and thin.low < thin.high and thin.starts < FEW_STARTS:
            self.notices.append(
                Notice(
                    "interval-thin",
                    f"the interval rests on {thin.starts} real starts of this kind ({thin.kind})",
                    "give --weights-bytes and --free-memory as the engine prints them",
                )
            )
        if not self.engine_known:
            self.notices.append(
                Notice(
                    "no-engine-rule",
                    f"no engine rule is known for {self.gpu.name}: weights and KV are exact, the pool is only what the card "
                    "has left, and the concurrency an upper bound",
                )
            )

    def request_bytes(self, tokens: int) -> int:
        """Bytes that one request of `tokens` tokens holds on one tensor-parallel rank of all stages together."""
        if tokens not in self._demand:
            if len(self._demand) > 4096:
                self._demand.clear()
            self._demand[tokens] = self.plan.request_bytes(tokens)
        return self._demand[tokens]


def _is_own(name: str, own: Quantization | None) -> bool:
    """Whether a quantisation that is asked for by name is the one that the checkpoint has: then its own list of weights counts."""
    return own is not None and own.name.lower() == name.strip().lower()


def _find_cards(deployment: Deployment, gpus: Sequence[Gpu], notices: list[Notice]) -> tuple[Card, ...]:
    """The cards that work together, each with its memory; several are joined by `+` in the name."""
    names: list[str | None] = [None]
    if deployment.gpu is not None:
        names = [part.strip() for part in deployment.gpu.split("+")]
        if not all(names) or len(names) > MOST_CARDS:
            raise InputError(
                f"{deployment.gpu[:64]!r} does not name cards",
                code="invalid-input",
                hint="several cards that work together are joined so: rtx-4090+rtx-3060",
                where="gpu",
            )
    found = []
    for name in names:
        gpu = _find_card(name, deployment.vram, gpus, notices)
        if deployment.vram:
            found.append(Card(gpu, deployment.vram, "flag --vram"))
        else:
            found.append(Card(gpu, gpu.total_bytes, gpu.total_source))
    if len(found) == 1 and deployment.gpu_count is not None:
        found *= min(deployment.gpu_count, MOST_CARDS)
    return tuple(found)


def _together(cards: Sequence[Card], smallest: Card) -> Gpu:
    """Cards that differ as one entry: the smallest one's facts under the names of all."""
    return smallest.gpu._replace(
        id="+".join(card.gpu.id for card in cards), name=" + ".join(card.gpu.name for card in cards)
    )


def _find_card(name: str | None, vram: int | None, gpus: Sequence[Gpu], notices: list[Notice]) -> Gpu:
    """The card that is named, or one of unknown make and the given memory."""
    if name is None:
        if vram is None:
            raise InputError(
                "no GPU is given", code="no-gpu", hint="name one: --gpu a100-80, or give its memory: --vram 48GiB"
            )
        return _nameless(vram, "a card")
    try:
        found = find_gpu(name, gpus)
        if found in gpus:
            _say_hidden(name, notices)
        return found
    except UnknownNameError as error:
        if vram is None:
            raise
        notices.append(Notice("unknown-gpu", f"{error.message}; its memory is taken from --vram", error.hint))
        return _nameless(vram, name)


def _say_hidden(name: str, notices: list[Notice]) -> None:
    """Say so where a card of one's own has the name of one in the catalogue."""
    try:
        hidden = find_gpu(name)
    except UnknownNameError:
        return
    notices.append(Notice("own-gpu", f"{name[:64]!r} is your own entry and hides the catalogue's {hidden.id}"))


def _nameless(vram: int, name: str) -> Gpu:
    shown = name if name.isprintable() and len(name) <= 64 else ascii(name)[:64]
    return Gpu(
        id=shown, name=shown, vendor="user", kind="user", total_bytes=vram, total_source="flag --vram", source="user"
    )
