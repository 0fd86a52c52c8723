"""What one matrix instruction is: the numbers that decide its bits, and the choices where public sources disagree."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from bitverdict.reference.formats import FORMATS, Format, Rounding
from bitverdict.reference.tensor_core.evidence import Evidence


class Accumulator(Enum):
    """Where c enters."""

    IN_SUM = "c is aligned and added with the products of a block"
    ADDED_AFTER = "the products start from zero and c is added to their result, an ordinary IEEE addition"


class Step(Enum):
    """What one block does with its products and c. All but the first are AMD's (docs/amd_arithmetic.md) [MS]."""

    FUSED = "products and c are cut together, toward zero, and their sum is rounded once"
    PRODUCTS_FIRST = "products are cut and added; that sum and c are cut down where they meet, and the total is rounded twice"
    EVEN_AND_ODD = "as PRODUCTS_FIRST, but the products of even and of odd k are cut apart and then added"
    PAIRWISE = "fp32 multiplications and additions as a tree of few products, each to nearest, every subnormal flushed"
    MULTIPLY_ADD = "one fp32 fused multiply-add a product, to nearest"


class ExponentFloor(Enum):
    """Whether the alignment exponent E is held up when every term is tiny (disagreement 1 of docs/arithmetic.md).

    Rests on it: sums near 2^-149 (bf16, tf32), and for fp16 output terms below 2^-44 next to a rounding tie. Settled on sm_90 by
    our own words (H200, mma.sync and wgmma): PROBED. Taken for the other mma.sync from the same probes; tcgen05 keeps NONE.
    """

    NONE = "E is the largest exponent present, however small [SF]"
    PROBED = "E is at least -132 (F = 24 or less) or -133 (F = 25) for fp32 output, -20 or -21 for fp16 output [TB, MS, H200 words]"
    ZERO_ACCUMULATOR = "a zero c takes part with exponent -126 [MS before 2.1, and of AMD]"


class ZeroTerms(Enum):
    """Whether a product with a zero operand can raise E (disagreement 2).

    Rests on it: c beside zero products under block scales near 2^127. Settled on sm_90 by our own words, without scales: LEFT_OUT.
    """

    LEFT_OUT = "zero terms take no part in E [TB, ME, SF]"
    TAKE_PART = "a zero operand has exponent -126, its scale added, and takes part [MS]"


class ScaledGroups(Enum):
    """How many products of mxf4nvf4 with ue4m3 scales are added exactly before the truncation (disagreement 3).

    Rests on it: blocks that cancel to zero beside a smaller one; no random case in 20,000.
    """

    OF_FOUR = "groups of 4 where a product leads, of 16 where c leads [SF]"
    OF_SIXTEEN = "always groups of 16 [MS]"


class ScaledWindow(Enum):
    """Where mxf4 and mxf4nvf4 cut (disagreement 4).

    Rests on it: c between the largest scale and the largest product; results below 2^-126.
    """

    BY_LARGEST_PRODUCT = "cut at max(R - 39, C - 39, S - 35), with a rule per group and one for subnormal results [SF]"
    BY_SCALE = "cut at max(S, C) - 35 [MS]; S leaves groups of zeros out, unless zero terms take part [MS before 2.1]"


class InfiniteAccumulator(Enum):
    """What mxf4 and mxf4nvf4 do with an infinite c (disagreement 5)."""

    PASSES = "it is passed on, as in the other kinds [SF]"
    REFUSED = "a ValueError: the model does not know [MS]"


class BlockOrder(Enum):
    """How the two blocks of fp16 k16, bf16 k16 and tf32 k8 follow each other on sm_80, sm_86, sm_87 and sm_89 (disagreement 6).

    Rests on it: 43 to 95 % of the words at K = 256. Public words have one block of each: none settles it. `sides` has the numbers.
    """

    ASCENDING = "the lower half of k first; its rounded result is the c of the upper half [MS, TB]"
    DESCENDING = "the upper half of k first [no model; no word excludes it]"
    ONE_BLOCK = "no halves: one block over k, as from sm_90 on [no model of these chips; no word excludes it]"


class ConsumerFp8(Enum):
    """How sm_120 runs e4m3 and e5m2 of mma.sync (disagreement 7). `sides` has the numbers."""

    NATIVE = "one block over k with c in the sum [MS; TB since 2026-02-12, of fp32 results]"
    WIDENED = "as mma.sync of B200, whose model TB takes: fp16 blocks over register halves, c added after [TB before 2026-02-12]"


@dataclass(frozen=True)
class Choices:
    """The side taken in each public disagreement. Only the first two are settled by words in reach, and on sm_90 alone."""

    exponent_floor: ExponentFloor = ExponentFloor.PROBED
    zero_terms: ZeroTerms = ZeroTerms.LEFT_OUT
    scaled_groups: ScaledGroups = ScaledGroups.OF_FOUR
    scaled_window: ScaledWindow = ScaledWindow.BY_LARGEST_PRODUCT
    infinite_accumulator: InfiniteAccumulator = InfiniteAccumulator.PASSES
    block_order: BlockOrder = BlockOrder.ASCENDING
    consumer_fp8: ConsumerFp8 = ConsumerFp8.NATIVE


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One matrix instruction, as far as its bits go: D = A B + C, one element at a time.

    `block` products and c are cut to `fraction_bits` below the largest exponent among them, added exactly, and the sum is
    rounded to `d` keeping `output_fraction_bits`. `passes` says which k of a span each block takes, in the order in which the
    blocks run; None is ascending, and a span is then one block.
    """

    arch: str
    family: str
    kind: str  # the PTX kind of a tcgen05, else the family's own name for its operands
    a: str
    b: str
    d: str
    block: int
    fraction_bits: int
    rounding: Rounding
    output_fraction_bits: int
    evidence: Evidence
    passes: tuple[tuple[int, ...], ...] | None = None
    accumulator: Accumulator = Accumulator.IN_SUM
    widened: str | None = None  # format that a and b are widened to (exactly) before anything else
    scale: str | None = None
    scale_block: int | None = None  # products along K that share a scale
    saturates: bool = False  # integers only: clamp instead of wrap
    step: Step = Step.FUSED
    sum_fraction_bits: int | None = None  # PRODUCTS_FIRST, EVEN_AND_ODD: what the total keeps before its last rounding
    tree: int | None = None  # PAIRWISE: products that are added as a tree before c
    exponent_floor: int | None = None  # where ExponentFloor.PROBED holds E up; None: as probed for the output and F
    choices: Choices = field(default_factory=Choices)

    @property
    def floor(self) -> int:
        """`exponent_floor`, spelled out."""
        if self.exponent_floor is not None:
            return self.exponent_floor
        return (-132 if self.d == "fp32" else -20) - (self.fraction_bits > 24)

    @property
    def output(self) -> Format:
        """Format of c and d."""
        return FORMATS[self.d]

    @property
    def sums_groups_exactly(self) -> bool:
        """Whether small groups of products are added exactly before anything is cut (mxf4, mxf4nvf4)."""
        return self.kind in ("mxf4", "mxf4nvf4")

    @property
    def span(self) -> int:
        """How many k one round of `passes` takes; K is padded with zeros to a multiple of it."""
        return self.block * (1 if self.passes is None else len(self.passes))

    @property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """`passes`, spelled out."""
        return self.passes if self.passes is not None else (tuple(range(self.block)),)

    @property
    def name(self) -> str:
        """As a report writes it."""
        scaled = f" scaled by {self.scale} per {self.scale_block}" if self.scale else ""
        kind = "" if self.kind == self.family else f" {self.kind}"
        return f"{self.arch} {self.family}{kind} {self.a} x {self.b} -> {self.d}{scaled}"
