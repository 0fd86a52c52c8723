"""Faults planted in the kernels of `tests/faults/causes/kernels/`, which serve language models, with what each makes of a result.

Each gives wrong words, and no line of the kernel shows it. `SEEN_HALF` was known while the search for causes was written, what is
said of the others was not looked at before it stood: `python -m benchmarks.named_causes --collection models` counts both."""

from __future__ import annotations

from bitverdict.harness.model.verdict import Outcome
from tests.faults.causes.record import Explained
from tests.faults.mutants import Mutant, SourceEdit

FOLDER = "tests/faults/causes/kernels"
WRONG = (Outcome.WRONG_MATHEMATICS, Outcome.OUTSIDE_BOUND, Outcome.WRONG_WORDS, Outcome.LOST_PRECISION)
_Fault = tuple[str, tuple[tuple[str, str], ...], tuple[str, ...]]
"""What is wrong, the edits, and regular expressions of which one is in each sentence that names it."""


def _edit(replace: str, by: str) -> tuple[tuple[str, str], ...]:
    return ((replace, by),)


_FAULTS: dict[str, tuple[_Fault, ...]] = {
    "add_layer_norm": (
        ("epsilon outside the root", _edit("tl.sqrt(var + eps)", "(tl.sqrt(var) + eps)"), (r"0\.001 outside",)),
        (
            "divided by n - 1",
            _edit("centred * centred, axis=0) / n", "centred * centred, axis=0) / (n - 1)"),
            (r"divided by \d+, not|n - 1",),
        ),
        ("residual forgotten", _edit("h = x + r\n    mean", "h = x\n    mean"), (r"without the addition of r\b",)),
        ("bias forgotten", _edit("rstd * w + b", "rstd * w"), (r"without the addition of b\b",)),
        (
            "mean over the block",
            _edit("tl.sum(h, axis=0) / n", "tl.sum(h, axis=0) / BLOCK"),
            (r"mean\(x \+ r\) divided by \d+, not",),
        ),
        (
            "shift before scale",
            _edit("centred * rstd * w + b", "(centred * rstd + b) * w"),
            (r"the factor w moved behind .* \+ b",),
        ),
        ("masked lanes in the variance", _edit("tl.where(mask, h - mean, 0.0)", "h - mean"), ("masked elements count",)),
        (
            "variance of x alone",
            _edit(
                "var = tl.sum(centred * centred, axis=0) / n",
                "xc = tl.where(mask, x - tl.sum(x, axis=0) / n, 0.0)\n    var = tl.sum(xc * xc, axis=0) / n",
            ),
            (r"x in the place of (h|x \+ r)|without the addition of r in",),
        ),
    ),
    "group_norm": (
        ("epsilon forgotten", _edit("tl.rsqrt(var + eps)", "tl.rsqrt(var)"), (r"without the addition of 0\.001",)),
        (
            "gain of the group",
            _edit("tl.load(w_ptr + channel,", "tl.load(w_ptr + group + 0 * channel,"),
            (r"takes w .*group|w at .* // |w at axis 0 = 0|first",),
        ),
        (
            "bias of the next channel",
            _edit(
                "tl.load(b_ptr + channel, mask=at < size",
                "tl.load(b_ptr + (channel + 1) % (PER_GROUP * tl.num_programs(0)), mask=at < size",
            ),
            (r"takes b at index \+ 1",),
        ),
        ("sigmoid for silu", _edit("z * tl.sigmoid(z), mask", "tl.sigmoid(z), mask"), (r"1 in the place of .* above",)),
        (
            "mean over whole blocks",
            _edit("mean = mean / size", "mean = mean / (tl.cdiv(size, BLOCK) * BLOCK)"),
            (r"divided by \d+, not",),
        ),
        (
            "activation before the bias",
            _edit(
                "z = (x - mean) * rstd * w + b\n        tl.store(y_ptr + first + at, z * tl.sigmoid(z)",
                "z = (x - mean) * rstd * w\n        tl.store(y_ptr + first + at, z * tl.sigmoid(z) + b",
            ),
            (r"addition of b\S* (moved|after|behind)|b\S* added after",),
        ),
    ),
    "causal_conv1d": (
        ("taps reversed", _edit("channel * TAPS + tap)", "channel * TAPS + TAPS - 1 - tap)"), (r"w in reverse along axis 1",)),
        ("last tap missing", _edit("range(TAPS)", "range(TAPS - 1)"), (r"without its last element",)),
        ("one position early", _edit("at - (TAPS - 1) + tap", "at - TAPS + tap"), (r"x at index - 1 of axis 2",)),
        ("bias forgotten", _edit("acc = acc + tl.load(bias_ptr + channel)", "acc = acc + 0.0"), (r"without the addition of bias",)),
        (
            "first position repeated before the start",
            _edit(
                "first + source, mask=(source >= 0) & (source < length), other=0.0",
                "first + tl.maximum(source, 0), mask=source < length, other=0.0",
            ),
            (r"first element|x at axis 2 = 0|edge|repeat",),
        ),
        (
            "activation before the bias",
            _edit(
                "acc * tl.sigmoid(acc), mask",
                "(acc - tl.load(bias_ptr + channel)) * tl.sigmoid(acc - tl.load(bias_ptr + channel))"
                " + tl.load(bias_ptr + channel), mask",
            ),
            (r"addition of bias\S* (moved|after|behind)|bias\S* added after",),
        ),
    ),
    "selective_scan": (
        (
            "skip forgotten",
            _edit("axis=0) + skip * x", "axis=0)"),
            (r"without the addition of skip \* ", r"without the addition of skip"),
        ),
        ("powers of two", _edit("tl.exp(-dt * a)", "tl.exp2(-dt * a)"), ("exp2 in the place of exp",)),
        (
            "state lost between chunks",
            _edit("        h = state\n", "        h = tl.zeros((BLOCK,), tl.float32)\n"),
            (r"(every|each) 4|from zero|lost|4 steps",),
        ),
        (
            "step missing before b",
            _edit("+ dt * b * x", "+ b * x"),
            (r"without the factor dt\[?\S* ?(in|wherever)|without the factor dt",),
        ),
        (
            "output of the state before",
            _edit(
                "            h = tl.exp(-dt * a) * h + dt * b * x\n            y = tl.sum(c * h, axis=0) + skip * x\n",
                "            y = tl.sum(c * h, axis=0) + skip * x\n            h = tl.exp(-dt * a) * h + dt * b * x\n",
            ),
            (r"(step|iteration|turn) before|stale|h\[?t? ?- ?1|previous|before",),
        ),
        (
            "b and c exchanged",
            (
                ("tl.load(b_ptr + step", "tl.load(swap_ptr + step"),
                ("tl.load(c_ptr + step", "tl.load(b_ptr + step"),
                ("tl.load(swap_ptr + step", "tl.load(c_ptr + step"),
            ),
            (r"b and c exchanged",),
        ),
    ),
    "moe_gating": (
        (
            "weights not normalised",
            _edit("weights / tl.sum(weights, axis=0) * factor", "weights * factor"),
            (r"without the division by sum\(take_along_axis",),
        ),
        ("factor forgotten", _edit("axis=0) * factor", "axis=0)"), (r"without the factor 2\.5|times 1/2\.5|times 0\.4",)),
        (
            "factor before the normalisation",
            _edit("weights / tl.sum(weights, axis=0) * factor", "weights * factor / tl.sum(weights * factor, axis=0)"),
            (r"without the factor 2\.5|times 0\.4",),
        ),
        (
            "weights of the first for all",
            _edit(
                "weights = tl.where(slots == place, largest, weights)",
                "weights = tl.where(slots == place, tl.max(shares, axis=0), weights)",
            ),
            (r"first|axis 1 = 0",),
        ),
        ("powers of two", _edit("tl.exp(logits", "tl.exp2(logits"), ("exp2 in the place of exp",)),
    ),
    "gptq_gemm": (
        (
            "zero point + 1 forgotten",
            _edit("& 0xF) + 1\n        s", "& 0xF)\n        s"),
            (r"without the addition of 1\b|\+ 0 in the place of \+ 1",),
        ),
        ("zero point not subtracted", _edit("(q - z).to", "q.to"), (r"without the subtraction of",)),
        (
            "scale of the next group",
            _edit("s_ptr + group[:, None] * n", "s_ptr + ((group + 1) % tl.cdiv(k, GROUP))[:, None] * n"),
            (r"takes s at index \+ 1 of axis 0",),
        ),
        (
            "scale of the first group",
            _edit("s_ptr + group[:, None] * n", "s_ptr + (0 * group)[:, None] * n"),
            (r"takes s at axis 0 = 0 for all",),
        ),
        (
            "scale applied twice",
            _edit(".to(tl.float16) * s\n", ".to(tl.float16) * s * s\n"),
            (r"factor .*s\)? twice|s applied twice",),
        ),
        ("nibbles in reverse", _edit("(depth % 8 * 4)", "(28 - depth % 8 * 4)"), (r"reverse",)),
        ("tail of K dropped", _edit("range(0, k, BLOCK_K)", "range(0, k - k % BLOCK_K, BLOCK_K)"), (r"tail|last",)),
        (
            "zero points by the wrong column",
            _edit("(z >> (cols % 8 * 4)[None, :])", "(z >> (cols // 8 % 8 * 4)[None, :])"),
            (r"//.*in the place of|column|shift",),
        ),
    ),
    "flash_decoding": (
        (
            "parts not rescaled when joined",
            _edit("tl.sum(acc * weight[:, None], axis=0) / total", "tl.sum(acc, axis=0) / total"),
            (r"rescal",),
        ),
        ("sums not rescaled when joined", _edit("part) * weight, axis=0)", "part), axis=0)"), (r"rescal",)),
        (
            "last part omitted",
            _edit(
                "acc = tl.load(acc_ptr + places, mask=(depth < d)[None, :]",
                "weight = tl.where(part < PARTS - 1, weight, 0.0)\n    acc = tl.load(acc_ptr + places, mask=(depth < d)[None, :]",
            ),
            (r"last (part|quarter|block)|without its (tail|last)",),
        ),
        ("scale forgotten", _edit("axis=1) * scale", "axis=1)"), (r"without the factor 0\.|without the factor",)),
        (
            "old maximum in the powers",
            _edit("p = tl.exp(scores - higher)", "p = tl.exp(scores - tl.where(largest == -float('inf'), higher, largest))"),
            (r"old|before|rescal|maximum",),
        ),
        ("powers of two", _edit("p = tl.exp(scores", "p = tl.exp2(scores"), (r"exp2",)),
        ("accumulator not rescaled", _edit("acc = acc * rescale +", "acc = acc +"), (r"rescal",)),
        ("running sum not rescaled", _edit("total = total * rescale +", "total = total +"), (r"rescal",)),
    ),
    "paged_attention": (
        (
            "tables in reverse",
            _edit("sequence * most_pages + place)", "sequence * most_pages + tl.cdiv(length, PAGE) - 1 - place)"),
            (r"table\S* in reverse|pages in reverse",),
        ),
        (
            "table of the first sequence",
            _edit("table_ptr + sequence * most_pages", "table_ptr + 0 * sequence * most_pages"),
            (r"takes table at axis 0 = 0 for all",),
        ),
        ("wrong head", _edit("head // SHARED", "head % kv_heads"), (r"head|repeat|tile|%|interleaved|modulo",)),
        (
            "one key too few",
            _edit("seen = keys < length", "seen = keys < length - (length > 1)"),
            (r"lengths - 1|length.* - 1|<.*- 1|without its last",),
        ),
        ("scale forgotten", _edit("axis=1) * scale", "axis=1)"), (r"without the factor",)),
        ("accumulator not rescaled", _edit("acc = acc * rescale +", "acc = acc +"), (r"rescal",)),
    ),
    "reshape_and_cache": (
        (
            "slot of the next token",
            _edit("slot = tl.load(slot_ptr + token)", "slot = tl.load(slot_ptr + (token + 1) % tl.num_programs(0))"),
            (r"slot at index \+ 1|k at index - 1 of axis 0",),
        ),
        ("multiplied by the scale", _edit("(k / scale)", "(k * scale)"), (r"\* in the place of /|multipl",)),
        ("scale forgotten", _edit("(k / scale)", "(k)"), (r"without the division by scale",)),
        (
            "heads and positions exchanged",
            _edit("(token * heads + head) * d + depth, mask", "token * heads * d + depth * heads + head, mask"),
            (r"transpos|exchanged",),
        ),
    ),
    "varlen_attention": (
        (
            "a row does not see itself",
            _edit("(far >= 0) & (far < WINDOW)", "(far > 0) & (far < WINDOW)"),
            (r"> in the place of >=",),
        ),
        ("window one too wide", _edit("far < WINDOW", "far <= WINDOW"), (r"<= in the place of <",)),
        ("window forgotten", _edit("(far >= 0) & (far < WINDOW) &", "(far >= 0) &"), (r"without .*< 20",)),
        ("accumulator not rescaled", _edit("acc = acc * rescale[:, None] +", "acc = acc +"), (r"rescal",)),
        ("running sum not rescaled", _edit("total = total * rescale +", "total = total +"), (r"rescal",)),
        ("soft cap forgotten", _edit("        scores = cap * (1.0 - 2.0 / (tl.exp(2.0 * scores / cap) + 1.0))\n", ""), (r"tanh",)),
        ("soft cap not multiplied again", _edit("cap * (1.0 - 2.0", "(1.0 - 2.0"), (r"without the factor 4",)),
        (
            "rescaled by the new maximum",
            _edit("rescale = tl.exp(largest - higher)", "largest = higher\n        rescale = tl.exp(largest - higher)"),
            (r"rescal",),
        ),
    ),
    "stochastic_round": (
        ("noise forgotten", _edit("word + noise", "word"), (r"without the addition of",)),
        ("fifteen bits of noise", _edit("& 0xFFFF\n", "& 0x7FFF\n"), (r"32767|32768|0x7fff",)),
        ("another seed", _edit("tl.randint(seed, at)", "tl.randint(seed + 1, at)"), (r"seed \+ 1",)),
    ),
    "embedding_bag": (
        ("last place missed", _edit("range(count)", "range(count - 1)"), (r"counts - 1|counts\S* - 1|last",)),
        ("weights forgotten", _edit("acc += weight * tl", "acc += tl"), (r"without the factor weights",)),
        (
            "row of the place",
            _edit("row = tl.load(rows_ptr + bag * most + place)", "row = tl.load(rows_ptr + bag * most)"),
            (r"rows at axis 1 = 0",),
        ),
        (
            "mean over the most",
            _edit("acc / tl.maximum(count, 1)", "acc / most"),
            (r"divided by \d+ \(the size of an axis\)|divided by",),
        ),
        ("sum for a mean", _edit("acc / tl.maximum(count, 1)", "acc"), (r"without the division by",)),
    ),
    "segmented_sum": (
        ("last row missed", _edit("(rows < end)[:, None]", "(rows < end - 1)[:, None]"), (r"- 1|last",)),
        (
            "sum not started anew",
            _edit("range(first, end, BLOCK)", "range(0 * first, end, BLOCK)"),
            (r"without .*>=|always|cumul|running|start",),
        ),
    ),
    "linear_cross_entropy": (
        ("maximum not added back", _edit("loss = largest + tl.log", "loss = tl.log"), (r"without the addition of max",)),
        ("running sum not rescaled", _edit("total = total * tl.exp(largest - higher) +", "total = total +"), (r"rescal",)),
        (
            "padding counted in the sum",
            _edit('tl.where(word < words, logits, -float("inf"))', "logits"),
            (r"masked elements count|zeros fill|fill",),
        ),
        ("smoothing over the block", _edit("plain / words", "plain / (tl.cdiv(words, BLOCK) * BLOCK)"), (r"divided by \d+, not",)),
        ("target of the next word", _edit("word == target", "word == (target + 1) % words"), (r"target \+ 1|target.* \+ 1|\+ 1",)),
        ("smoothing not taken from the target", _edit("(1.0 - smoothing) * due", "due"), (r"without the factor 0\.75",)),
        ("targets below 0 counted", _edit("tl.where(target < 0, 0.0, loss)", "loss"), (r"never holds|target < 0",)),
    ),
    "persistent_matmul": (
        ("bias forgotten", _edit("z = acc + bias[None, :]", "z = acc"), (r"without the addition of bias",)),
        (
            "bias after the activation",
            (("z = acc + bias[None, :]", "z = acc"), ("tl.sigmoid(2.0 * inner)", "tl.sigmoid(2.0 * inner) + bias[None, :]")),
            (r"addition of bias (moved|after|behind)|bias added after",),
        ),
        (
            "gelu by erf",
            _edit("c = z * tl.sigmoid(2.0 * inner)", "c = 0.5 * z * (1.0 + tl.erf(0.7071067811865476 * z)) + 0.0 * inner"),
            (r"erf",),
        ),
        (
            "accumulator not zeroed",
            (
                ("    for tile in range(", "    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)\n    for tile in range("),
                ("        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)\n        for start", "        for start"),
            ),
            (r"tile|zero|before",),
        ),
        (
            "cube of the gelu forgotten",
            _edit("z * z * z)\n        c", "z * z)\n        c"),
            (r"without the factor z|without the factor",),
        ),
        (
            "activation forgotten",
            _edit("c = z * tl.sigmoid(2.0 * inner)", "c = z + 0.0 * inner"),
            (r"what follows it is missing|without",),
        ),
        (
            "activation at each step of K",
            _edit("            acc += tl.dot(a, b)\n", "            acc += tl.dot(a, b)\n            acc = tl.maximum(acc, 0.0)\n"),
            (),
        ),
    ),
    "dequantize_groups": (
        ("zero point not subtracted", _edit("(q - z) * s", "q * s"), (r"without the subtraction of",)),
        (
            "zero point after the scale",
            _edit("(q - z) * s", "q * s - z"),
            (r"subtraction of .*z.* (moved|after|behind)|subtracted after|before",),
        ),
        (
            "scale of the group before",
            _edit("groups + group, mask=mask, other=0.0)", "groups + tl.maximum(group - 1, 0), mask=mask, other=0.0)"),
            (r"s at index - 1 of axis 1",),
        ),
        (
            "signed bytes",
            _edit(
                "q = tl.load(q_ptr + row * n + cols, mask=mask, other=0).to",
                "q = tl.load(q_ptr + row * n + cols, mask=mask, other=0).to(tl.int8, bitcast=True).to",
            ),
            (r"signed|int8",),
        ),
        (
            "zero point of the column",
            _edit("row * groups + group, mask=mask, other=0).to", "row * groups + cols % groups, mask=mask, other=0).to"),
            (r"%|tile|repeat|interleaved|modulo",),
        ),
        ("sign", _edit("(q - z) * s", "(z - q) * s"), (r"other sign|in the place of",)),
    ),
}


def _bugs() -> tuple[Explained, ...]:
    return tuple(
        Explained(
            mutant=Mutant(
                kernel=f"{FOLDER}/{kernel}.py",
                name=name,
                edits=tuple(SourceEdit(*edit) for edit in edits),
                expected=tuple(outcome.value for outcome in WRONG),
            ),
            causes=causes,
            contract="alone",
        )
        for kernel, faults in _FAULTS.items()
        for name, edits, causes in faults
    )


BUGS = _bugs()
SEEN_HALF, UNSEEN_HALF = BUGS[::2], BUGS[1::2]
