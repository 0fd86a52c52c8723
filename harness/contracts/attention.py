"""What `kernels/attention.py` expects, forward and backward: products by the tensor core's model, fp32 arithmetic word for word,
row sums in the order of the product's fragments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

import bitverdict.kernels.attention
from bitverdict.harness.contracts.base.row_contract import normal_for
from bitverdict.harness.contracts.base.single_config import Fields, KernelContract, call_launcher, far_pad
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.oracle import row_mathematics
from bitverdict.harness.contracts.oracle.dot_lowering import chained_product, dot_plan, words_rest_on
from bitverdict.harness.contracts.oracle.row_mathematics import Formula
from bitverdict.harness.model.architectures import architecture, is_amd
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput, PromisedInstruction
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.triton_release import sums_by_tree
from bitverdict.reference import attention as plan
from bitverdict.reference.formats import convert

NAMES = ("dtype", "d", "causal", "scale", "backward"), ("block_m", "block_n", "num_warps", "stages")
SIZES = ("batch", "heads", "kv_heads", "m", "n")
POOL = (
    (("bf16", 40, True, 0.3, False), (128, 32, 8, 3)),
    (("fp16", 48, True, None, True), (64, 32, 4, 2)),
    (("bf16", 64, False, None, True), (32, 32, 2, 1)),  # of mma.sync on each target, the row of a product in two warps
    (("fp16", 16, False, None, False), (128, 64, 4, 2)),  # of tcgen05, the row of a product in one thread
)
LISTED_SHAPES = (  # place in POOL, batch, heads, heads of K, rows of Q, rows of K, pads, regime
    (0, 1, 2, 1, 230, 90, 8, "normal"),  # rows that meet none, a program of such alone
    (1, 1, 2, 1, 134, 101, 0, "normal"),  # of gradients more blocks than stages; the first row that counts lies within one
    (0, 2, 2, 2, 64, 64, 8, "largest"),
    (1, 1, 2, 1, 66, 34, 32, "planted"),
    (2, 2, 2, 2, 33, 31, 0, "wide"),
    (1, 2, 4, 2, 3, 5, 16, "normal"),  # gradients of a batch
    (0, 1, 1, 1, 20, 165, 8, "normal"),  # more blocks of keys than stages
    (1, 1, 1, 1, 1, 1, 16, "integers"),
    (3, 1, 2, 2, 129, 65, 16, "normal"),
)


class AttentionContract(KernelContract):
    """Of a launcher of another's the output O alone is judged, forward."""

    conversions = frozenset()
    by_mfma = True
    parameters = "(q, k, v, *, causal=False, scale=None, block_m=128, block_n=64, num_warps=8, stages=2)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        return [self.pool_of(place) for place in range(len(POOL))]

    def pool_of(self, place: int) -> tuple[Fields, Fields]:
        problem, config = (dict(zip(names, values, strict=True)) for names, values in zip(NAMES, POOL[place], strict=True))
        return problem, config

    def draw_problem(self, draw: Callable, problem: Fields, config: Any, target: Target) -> Fields:
        from hypothesis import strategies as st

        kv_heads = draw(st.integers(1, 2))
        sizes = {"batch": draw(st.integers(1, 2)), "kv_heads": kv_heads, "heads": kv_heads * draw(st.integers(1, 3))}
        rows = {"m": draw(st.integers(1, 2 * config.block_m)), "n": draw(st.integers(1, 3 * config.block_n))}
        gaps = {name: -problem["d"] % 16 + 16 * draw(st.integers(0, 2)) for name in ("q_pad", "kv_pad")}
        return problem | sizes | rows | gaps | {"backward": problem["backward"] and draw(st.booleans())}

    def regime(self, place: int) -> str:
        return LISTED_SHAPES[place % len(LISTED_SHAPES)][-1]

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """Each tile: ragged blocks, groups, more rows than keys, more keys than rows. Gradients of one; `far` has another's."""
        for place, *sizes, pad, _ in LISTED_SHAPES if "tcgen05" in architecture(target.arch).families else LISTED_SHAPES[:-1]:
            problem, config = self.pool_of(place)
            pads = {"q_pad": pad, "kv_pad": 48 - problem["d"] % 16 - pad}
            yield problem | dict(zip(SIZES, sizes, strict=True)) | pads | {"backward": place == 1}, config

    def required(self, target: Target) -> list[Case]:
        found = super().required(target)
        return list(dict.fromkeys(map(self._with_bound_regime, found))) if is_amd(target.arch) else found

    def cases(self, target: Target) -> Any:
        found = super().cases(target)
        return found.map(self._with_bound_regime) if is_amd(target.arch) else found

    def _with_bound_regime(self, case: Case) -> Case:
        """`case` as a bound decides it."""
        return normal_for(self.with_regime_of_a_launcher(case), "wide", "subnormals", "planted")

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        """Rows of Q far apart within a batch; of K and V whole batches, whose stride fits 32 bits."""
        problem, config = self.pool_of(2)
        batch, m, n = 3, 45, 70
        pads = {"q_pad": far_pad(m, problem["d"]), "kv_pad": far_pad(2 * n + 1, problem["d"])}
        yield problem | dict(zip(SIZES, (batch, 1, 1, m, n), strict=True)) | pads, config

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = dict(zip(SIZES, (1, 2, 1, 8, 8), strict=True)) | {"d": 32}
        yield sizes | {"dtype": "fp32"}, {}
        yield sizes | {"n": 0}, {}
        yield sizes | {"d": 264}, {}
        yield sizes | {"heads": 3, "kv_heads": 2}, {}
        yield dict.fromkeys((*SIZES, "d"), 1) | {"heads": 1 << 16}, {}
        yield sizes | {"scale": -1.0}, {}
        yield sizes, {"block_n": 48}
        yield sizes, {"block_m": 64}
        yield sizes, {"block_n": 8}
        yield sizes, {"stages": 0}

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        """Not NaN and infinities: whether a masked one enters, as 0 times it, is the launcher's to say."""
        asked = normal_for(self.with_regime_of_a_launcher(case), "wide", "subnormals", "planted")
        return super().for_launcher(asked, launcher)

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        of_q, of_k = (p.batch, p.heads, p.m, p.d), (p.batch, p.kv_heads, p.n, p.d)
        shapes = {"q": (of_q, p.q_pad), "k": (of_k, p.kv_pad), "v": (of_k, p.kv_pad)}
        return [_operand(case, name, *each) for name, each in (shapes | ({"do": (of_q, p.q_pad)} if p.backward else {})).items()]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p = case.problem
        operands = [tensors[name] for name in ("q", "k", "v")]
        settings = {"causal": p.causal, "scale": p.scale} | vars(case.config)
        if launcher is not None:
            found = call_launcher(launcher, *operands, **settings)
            return {"o": found[0] if isinstance(found, tuple | list) else found}
        o, lse = self.module.attention(*operands, **settings)
        if not p.backward:
            return {"o": o, "lse": lse}
        dq, dk, dv = self.module.attention_backward(*operands, o, lse, tensors["do"], **settings)
        return {"o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv}

    def formula(self, case: Case) -> Formula:
        p = case.problem
        keywords, formats = {"scale": p.scale, "causal": p.causal, "dtype": p.dtype}, {"o": p.dtype, "lse": "fp32"}
        if p.backward and not case.launcher:
            formats |= dict.fromkeys(("dq", "dk", "dv"), p.dtype)
            return Formula(row_mathematics.attention_with_gradients, ("q", "k", "v", "do"), formats, keywords)
        return Formula(row_mathematics.attention, ("q", "k", "v"), formats, keywords)

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        if case.launcher or is_amd(target.arch):
            outputs = self.formula(case).expected(operands, target.arch)
            return outputs[:1] if case.launcher else outputs
        p, (tiles, basis) = case.problem, _tiles(case, target.arch)
        q, k, v = (np.ascontiguousarray(operands[name].codes) for name in ("q", "k", "v"))
        group = p.heads // p.kv_heads
        found = [
            plan.attention(q[batch, head], k[batch, head // group], v[batch, head // group], p.scale, p.causal, tiles)
            for batch in range(p.batch)
            for head in range(p.heads)
        ]
        o, lse = (np.stack(each) for each in zip(*found, strict=True))  # (batch heads, m, d), (batch heads, m)
        o, lse = tiles.narrow(o).reshape(q.shape), lse.reshape(q.shape[:3])
        outputs = [_output("o", p.dtype, o, basis), _output("lse", "fp32", lse, basis)]
        if p.backward:
            outputs += self._gradients(case, tiles, basis, q, k, v, o, lse, np.ascontiguousarray(operands["do"].codes))
        return outputs

    def _gradients(self, case: Case, tiles: plan.Tiles, basis: str, *codes: np.ndarray) -> list[ExpectedOutput]:
        """Of q, k, v, o, lse and do."""
        p = case.problem
        q, k, v, o, lse, do = codes
        group = p.heads // p.kv_heads
        gradients = [
            plan.attention_backward(q[b, own], k[b, head], v[b, head], o[b, own], lse[b, own], do[b, own], p.scale, p.causal, tiles)
            for b in range(p.batch)
            for head in range(p.kv_heads)
            for own in [slice(head * group, (head + 1) * group)]
        ]
        shapes = {"dq": q.shape, "dk": k.shape, "dv": v.shape}
        return [
            _output(name, p.dtype, tiles.narrow(np.stack(each)).reshape(shape), basis)
            for (name, shape), each in zip(shapes.items(), zip(*gradients, strict=True), strict=True)
        ]

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        """Of each program the blocks that some row of it meets, one at least: powers are computed of no others."""
        p, c = case.problem, case.config
        behind = p.n - p.m if p.causal else p.n  # row i meets the keys below i + 1 + behind, and below n
        ends = [max(min(p.n, start + c.block_m + behind), 1) for start in range(0, p.m, c.block_m)]
        of_keys = p.batch * p.heads * sum(-(-end // c.block_n) for end in ends)
        firsts = [max(start - behind, 0) // c.block_n if p.causal else 0 for start in range(0, p.n, c.block_m)]
        of_rows = p.batch * p.heads * sum(max(-(-p.m // c.block_n) - first, 0) for first in firsts)
        option, powers = f"causal={p.causal}", "executed math.exp2"
        peeled = 2 * p.batch * p.heads * sum(max(c.stages - 1 + -end // c.block_n, 0) for end in ends)
        return (
            PromisedInstruction(powers, 2 * of_keys, option, "attention_kernel", source_count=2, peeled_count=peeled),
            PromisedInstruction(powers, of_keys, option, "attention_dq_kernel"),
            PromisedInstruction(powers, of_rows, option, "attention_dk_dv_kernel"),
        )

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        p = case.problem
        return super().coverage(case, target) | {
            "causal": str(p.causal),
            "heads of a group": p.heads // max(p.kv_heads, 1),
            "backward": str(p.backward),
            "rows far apart": str(self.is_far(p)),
            "rows that meet none": str(p.causal and p.n < p.m),
        }


def _tiles(case: Case, arch: str) -> tuple[plan.Tiles, str]:
    """How `arch` computes a head, and what that rests on."""
    p, c = case.problem, case.config
    depth = max(1 << (p.d - 1).bit_length(), 16)  # one instruction of K at least
    product_plan = dot_plan(arch, p.dtype, block_m=c.block_m, block_n=c.block_n, block_k=depth, num_warps=c.num_warps)
    rule = product_plan.rule
    assert rule is not None
    tiles = plan.Tiles(
        rows=c.block_m,
        columns=c.block_n,
        depth=depth,
        warps=c.num_warps,
        family=product_plan.family,
        sm=int(arch.removeprefix("sm_")),
        product=partial(chained_product, rule),
        narrow=lambda words: convert("fp32", p.dtype, words, arch),
        widen=lambda codes: convert(p.dtype, "fp32", codes, arch),
        chain=not sums_by_tree(),
    )
    return tiles, words_rest_on(rule, "blocks of K and V in ascending order")


def _operand(case: Case, name: str, shape: tuple[int, int, int, int], pad: int) -> Operand:
    """(batch, heads, rows, D), `pad` elements after each row."""
    codes = regimes.draw(case.problem.dtype, shape, case.regime, regimes.generator(case.data_seed, name))
    row = shape[3] + pad
    strides = (shape[1] * shape[2] * row, shape[2] * row, row, 1)
    return Operand(name=name, format=case.problem.dtype, codes=codes, strides=strides)


def _output(name: str, format_name: str, words: np.ndarray, basis: str) -> ExpectedOutput:
    return ExpectedOutput(name=name, format=format_name, shape=words.shape, words=words, basis=basis)


contract = AttentionContract
CONTRACT = contract(bitverdict.kernels.attention)
