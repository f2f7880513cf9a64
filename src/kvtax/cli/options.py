"""Each option that commands share, defined once; what an option and a command are.

Commands declare their words with these types, and both readers of a command line (typer's, and the plain one of `plain_words`)
and the help are made from them. Values reach a command as text: `deployment.make_deployment` parses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

TEXT, MANY, FLAG = "text", "many", "flag"


class Option(NamedTuple):
    """One option.

    Args:
        name: the key of its value; the field of `Deployment` where it is one.
        flags: as written on a command line; the help shows these.
        help: one sentence.
        group: the heading in the help.
        kind: `text` (one value), `many` (may be repeated), `flag` (no value).
        metavar: what stands for the value in the help.
        off: flags that say no.
        also: other engines' names for it, accepted and not shown.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    group: str
    kind: str = TEXT
    metavar: str = "NAME"
    off: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


class Argument(NamedTuple):
    """One word without a dash, which may be left out; `many`: the rest of them, as a tuple."""

    name: str
    metavar: str
    help: str
    required: bool = False
    many: bool = False


class Command(NamedTuple):
    """A command: what it takes, what its help says, and what runs.

    Args:
        name: of the command.
        about: a few lines under the usage line.
        arguments: words without a dash, in order.
        options: in the order of the help.
        examples: (what it shows, command line).
        run: takes the values by name (None or () where not given) and returns the exit code.
    """

    name: str
    about: str
    arguments: tuple[Argument, ...]
    options: tuple[Option, ...]
    examples: tuple[tuple[str, str], ...]
    run: Callable[[Mapping[str, Any]], int]


_MODEL, _CARD, _LOAD, _OUTPUT = "Model", "Cards", "Requests", "Output"

MODEL_HELP = "Alias, org/name[@revision][:GGUF quantisation] on the hub, path of a folder or file, ollama:NAME, lmstudio:NAME, or - for a config on stdin."
MODEL = Option(
    "model",
    ("-m", "--model"),
    MODEL_HELP,
    _MODEL,
    metavar="MODEL",
)
MODEL_OPTIONS = (
    MODEL,
    Option("dtype", ("--dtype",), "Of weights that are not quantised and of activations [the checkpoint's].", _MODEL),
    Option(
        "quantization",
        ("-q", "--quantization"),
        "fp8, awq-int4, nvfp4, bnb-nf4, q4_k_m ...; fp8-online: made of 16 bit while loading [the checkpoint's own].",
        _MODEL,
    ),
    Option(
        "weights_bytes",
        ("--weights-bytes",),
        "Weights of one GPU, where headers or a log say it.",
        _MODEL,
        metavar="SIZE",
    ),
)
CARD_OPTIONS = (
    Option(
        "gpu",
        ("-g", "--gpu"),
        "A card, such as a100-80 or h100-sxm; may be repeated; a+b: together. Left out: the common cards.",
        _CARD,
        MANY,
    ),
    Option("gpu_count", ("--gpu-count",), "Cards at hand [tp x pp x dp].", _CARD, metavar="N"),
    Option(
        "vram", ("--vram",), "Memory of the card, instead of the catalogue's: 48GiB, 80000MiB.", _CARD, metavar="SIZE"
    ),
    Option(
        "free_memory", ("--free-memory",), "What the engine sees free when it starts to load.", _CARD, metavar="SIZE"
    ),
)
ONE_CARD_OPTIONS = (
    CARD_OPTIONS[0]._replace(help="The card, such as a100-80 or h100-sxm; a+b: together."),
    *CARD_OPTIONS[1:],
)
"""The same for commands that have one card."""
LOAD_OPTIONS = (
    Option(
        "max_model_len",
        ("--context", "--max-model-len", "--seq"),
        "Longest request in tokens: 8192, 8k, 128k [the model's limit].",
        _LOAD,
        metavar="TOKENS",
    ),
    Option(
        "concurrency",
        ("-n", "--concurrency", "--batch"),
        "Requests of that length that must fit at once [1].",
        _LOAD,
        metavar="N",
    ),
)
VARY = Option(
    "vary", ("--vary",), "Values of a field in turn; repeated: a grid.", "Changes", MANY, metavar="FIELD=VALUE,..."
)
OFFLINE = Option(
    "offline", ("--offline",), "No request: what is on this disk is all there is [HF_HUB_OFFLINE].", _MODEL, FLAG
)
CATALOGUE = Option(
    "catalogue",
    ("--catalogue",),
    "Models and cards of your own, in TOML [kvtax.toml here or above].",
    _OUTPUT,
    metavar="FILE",
)
FORMAT_OPTIONS = (
    Option("json", ("--json",), "The same as --format json.", _OUTPUT, FLAG),
    Option("format", ("--format",), "table, plain, json, markdown, csv or html [table].", _OUTPUT),
    Option("output", ("-o", "--output"), "Write to a file, whole or not at all.", _OUTPUT, metavar="FILE"),
    Option("color", ("--color",), "auto, always or never [auto].", _OUTPUT, metavar="WHEN"),
    Option("quiet", ("--quiet",), "Nothing on stderr but errors.", _OUTPUT, FLAG),
    Option("debug", ("--debug",), "Show where an error comes from.", _OUTPUT, FLAG),
)
PLOT = Option(
    "plot",
    ("--plot",),
    "Charts for a document: .svg, .png or .html by the file's name; takes the extra kvtax[plot].",
    _OUTPUT,
    metavar="FILE",
)
CHART = Option("chart", ("--chart",), "Draw the charts below the table too (table and html).", _OUTPUT, FLAG)
EXPLAIN = Option(
    "explain", ("--explain",), "Each number: symbols, numbers put in, result, and where each comes from.", _OUTPUT, FLAG
)
STRICT = Option("strict", ("--strict",), "An answer that rests on an assumption exits with 1.", _OUTPUT, FLAG)


def deployment_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Deployment among the values of a command, without `gpu` (a command may be given several)."""
    from kvtax.deployment import Deployment

    return {name: values[name] for name in Deployment._fields if name != "gpu" and values.get(name) is not None}
