"""The KV of a model by layer, by length, by dtype and by rank, as tables of a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvtax.planning.anatomy import Anatomy, LayerGroup, RankShare
from kvtax.units import Unit, common_unit, format_share, format_tokens
from kvtax.views.charts import BYTES, TOKENS, Axis, Curve, Curves
from kvtax.views.inspect_weights import weights_unit
from kvtax.views.layer_words import KINDS, kind_words, layers_words, shape_words
from kvtax.views.page import Cell, Column, Grid, Row, number_cell

_DTYPES = {
    "fp8_ds_mla": "16-bit rope key",
    "nvfp4_ds_mla": "fp8 rope key",
    "int8_per_token_head": "with scales",
    "int4_per_token_head": "with scales",
    "nvfp4": "with scales",
}


# ---- layers ----


_Row = tuple[int, int, int, int]


class _Sizes:
    """The columns of KV sizes that tables share, each in one unit for the whole column."""

    def __init__(self, anatomy: Anatomy, sizes: Sequence[_Row]) -> None:
        early, late, held, source = ([row[number] for row in sizes] for number in range(4))
        windows = any(first != later for first, later in zip(early, late, strict=True))
        rate, whole, extra = common_unit([*early, *late]), common_unit(held), common_unit(source)
        at = format_tokens(anatomy.tokens)
        self._parts: list[tuple[int, Unit, Column]] = []
        if any(early):
            self._parts.append(
                (
                    0,
                    rate,
                    Column(f"{rate.name}/token", "early_bytes_per_token" if windows else "bytes_per_token", right=True),
                )
            )
        if windows:
            self._parts.append((1, rate, Column("when full", "bytes_per_token", right=True)))
        if any(held):
            self._parts.append((2, whole, Column(f"{whole.name} at {at}", "request_bytes", right=True)))
        if any(source):
            self._parts.append((3, extra, Column(f"{extra.name} of source", "source_bytes", right=True)))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that have something to say."""
        return tuple(column for _, _, column in self._parts)

    def cells(self, sizes: _Row, tone: str = "") -> tuple[Cell, ...]:
        """The cells of one row: early and later bytes per token, of one request, of a source."""
        return tuple(_size(sizes[number], unit, tone) for number, unit, _ in self._parts)


def _size(size: int | float, unit: Unit, tone: str = "") -> Cell:
    return Cell(unit.show(size), size, tone) if size else Cell("-", 0, "dim")


def layers_block(anatomy: Anatomy) -> Grid:
    """Layers by kind of cache, and what each kind holds."""
    sizes = [
        (each.early_bytes_per_token, each.bytes_per_token, each.request_bytes, each.source_bytes)
        for each in anatomy.groups
    ]
    total = (
        sum(row[0] for row in sizes),
        sum(row[1] for row in sizes),
        sum(row[2] for row in sizes),
        anatomy.source_bytes,
    )
    shared = _Sizes(anatomy, [*sizes, total])
    rows = [
        Row((Cell(f"{len(group.layers):,} x {kind_words(group.cache)}"), *shared.cells(row)), (_layer_detail(group),))
        for group, row in zip(anatomy.groups, sizes, strict=True)
    ]
    if anatomy.layers_without_cache:
        rows.append(Row((Cell(f"{anatomy.layers_without_cache:,} x no cache"), *shared.cells((0, 0, 0, 0)))))
    if len(anatomy.groups) > 1:
        rows.append(Row((Cell("one request", None, "strong"), *shared.cells(total, "strong"))))
    return Grid("layers", "Layers", (Column("Layers", "kind"), *shared.columns), tuple(rows))


def _layer_detail(group: LayerGroup) -> str:
    shape, layers = shape_words(group.cache), layers_words(group.layers)
    return f"{shape}; {layers}" if shape else layers


# ---- how KV grows ----


def growth_block(anatomy: Anatomy) -> Iterator[Grid | Curves]:
    """A curve and a table of what one request holds at each length; nothing where that does not grow."""
    lengths = anatomy.lengths
    if len(lengths) < 2 or lengths[0].bytes == lengths[-1].bytes:
        return
    unit = common_unit(length.bytes for length in lengths)
    rate = common_unit(length.bytes // length.tokens for length in lengths)
    kinds = [kind for kind in KINDS if any(kind in length.by_kind for length in lengths)]
    columns = [Column("tokens", "tokens", right=True), Column("one request", "bytes", right=True)]
    if len(kinds) > 1:
        columns += [Column(KINDS[kind], f"{kind}_bytes", right=True) for kind in kinds]
    columns.append(Column(f"mean {rate.name}/token", "mean_bytes_per_token", right=True))
    rows = []
    for length in lengths:
        cells = [Cell(f"{length.tokens:,}", length.tokens), _size(length.bytes, unit, "strong")]
        if len(kinds) > 1:
            cells += [_size(length.by_kind.get(kind, 0), unit) for kind in kinds]
        mean = length.bytes / length.tokens
        rows.append(Row((*cells, Cell(rate.show(mean), mean, "dim"))))
    if lengths[0].bytes:
        yield growth_chart(anatomy)
    yield Grid("growth", f"One request, in {unit.name}", tuple(columns), tuple(rows))


def growth_chart(anatomy: Anatomy) -> Curves:
    """What one request holds against its length; dotted, if window and chunk layers kept every token."""
    lengths = anatomy.lengths
    held = tuple(length.bytes for length in lengths)
    curves = [Curve("", held)]
    others = tuple(length.without_windows or 0 for length in lengths)
    title = "How one request grows"
    if all(others) and others[-1] > held[-1]:
        curves.append(Curve("", others, dotted=True))
        title += " (dotted: if window layers kept every token)"
    y = Axis("", BYTES, logarithmic=all(held))
    at = tuple(length.tokens for length in lengths)
    return Curves(title, Axis("", TOKENS, logarithmic=True), y, at, tuple(curves))


def growth_plot(name: str, anatomy: Anatomy) -> Curves | None:
    """The same for a document: with each kind of layer, where there are several; None where nothing grows.

    Args:
        name: of the model.
        anatomy: of it.
    """
    lengths = anatomy.lengths
    if len(lengths) < 2 or lengths[0].bytes == lengths[-1].bytes:
        return None
    chart = growth_chart(anatomy)
    whole, *others = chart.curves
    kinds = [kind for kind in KINDS if any(kind in length.by_kind for length in lengths)]
    curves = [whole] if len(kinds) < 2 and not others else [whole._replace(name="one request")]
    if len(kinds) > 1:
        curves += [Curve(KINDS[kind], tuple(length.by_kind.get(kind) or None for length in lengths)) for kind in kinds]
    curves += [curve._replace(name="if windows kept all") for curve in others]
    return chart._replace(
        title=f"{name}: KV of one request, {anatomy.kv_dtype}",
        x=chart.x._replace(title="context [tokens]"),
        y=chart.y._replace(title="KV of one request"),
        curves=tuple(curves),
    )


def formats_block(anatomy: Anatomy) -> Grid:
    """The same request in other KV dtypes."""
    sizes = [(each.early_bytes_per_token, each.bytes_per_token, each.request_bytes, 0) for each in anatomy.formats]
    shared = _Sizes(anatomy, sizes)
    usual = anatomy.formats[0].request_bytes or 1
    rows = []
    for each, row in zip(anatomy.formats, sizes, strict=True):
        note = "the checkpoint asks for it" if each.calibrated else _DTYPES.get(each.dtype, "")
        share = Cell(format_share(each.request_bytes / usual))
        rows.append(Row((Cell(each.dtype), *shared.cells(row), share, Cell(note, None, "dim"))))
    columns = (Column("KV dtype", "dtype"), *shared.columns, Column("share", right=True), Column("", fold=True))
    return Grid("kv_dtypes", "KV dtype", columns, tuple(rows))


# ---- ranks ----


def ranks_block(anatomy: Anatomy) -> Grid:
    """What each rank of tensor parallelism holds."""
    sizes = [
        (rank.bytes_per_token, rank.bytes_per_token, rank.request_bytes, rank.source_bytes) for rank in anatomy.ranks
    ]
    shared = _Sizes(anatomy, sizes)
    heads, unit = anatomy.architecture.num_attention_heads, weights_unit(anatomy)
    rows = []
    for rank, row in zip(anatomy.ranks, sizes, strict=True):
        tone = "dim" if rank.refused else ""
        copies = rank.kv_copies
        rows.append(
            Row(
                (
                    Cell(f"TP {rank.tensor_parallel_size}", rank.tensor_parallel_size, tone),
                    Cell(unit.show(rank.weights_bytes), rank.weights_bytes, tone),
                    *shared.cells(row, tone),
                    number_cell("" if copies is None else f"{copies:.2f} x", copies, tone),
                    # the column is narrow beside cross-attention; JSON has the whole sentence
                    Cell(f"{heads} heads: refused", None, "bad")
                    if rank.refused
                    else Cell("; ".join(rank_remarks(rank, heads)), None, "dim"),
                )
            )
        )
    columns = (
        Column("Each rank", "tensor_parallel_size"),
        Column(f"{unit.name} weights", "weights_bytes", right=True),
        *shared.columns,
        Column("all KV", "kv_copies", right=True),
        Column("", "remark", fold=True),
    )
    return Grid("tensor_parallel", "Each rank", columns, tuple(rows))


def rank_remarks(rank: RankShare, attention_heads: int) -> Iterable[str]:
    """What does not divide, and what is kept more than once."""
    tp = rank.tensor_parallel_size
    if rank.refused:
        yield f"refused: {attention_heads} query heads do not divide"
        return
    for heads in rank.uneven_heads:
        yield f"{heads} KV heads do not divide"
    for heads in rank.replicated_heads:
        yield f"KV head{'' if heads == 1 else 's'} on {tp // heads} ranks{'' if heads == 1 else ' each'}"
    if rank.replicated_latent:
        yield "latent on every rank"
