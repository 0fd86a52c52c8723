"""Bugs of a plain matmul's launcher and kernel, and what each makes of the product."""

from __future__ import annotations

from tests.faults.causes.record import Explained
from tests.faults.mutants import Mutant, SourceEdit

TUTORIAL = "docs/examples/tutorial_matmul.py"
SIZES = ({"m": 150, "n": 130, "k": 105}, {"m": 96, "n": 70, "k": 77}, {"m": 128, "n": 128, "k": 128})
_LOOP = "for k in range(0, K, BLOCK_K):"
_A = "a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k, other=0.0)"
_DOT = "acc = tl.dot(a, b, acc)"
_ROWS = "a_ptrs = a_ptr + (offs_m % M)"
_COLUMNS = "(offs_n % N)[None, :]"
_STORE = "tl.store(c_ptrs, acc.to(tl.float16), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))"
_PLACES = "c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn"
_ZERO = "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)"
_STEP_A = "        a_ptrs += BLOCK_K * stride_ak\n"
_GRID = "grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))"
_INSIDE = "    " + _STORE
_ALLOCATED = "c = torch.empty((M, N), device=a.device, dtype=a.dtype)"


def _bug(name: str, *edits: tuple[str, str], causes: tuple[str, ...], cases: tuple = SIZES) -> Explained:
    made = tuple(SourceEdit(was, by) for was, by in edits)
    mutant = Mutant(kernel=TUTORIAL, name=name, edits=made, expected=("wrong mathematics", "lost precision", "outside the bound"))
    return Explained(mutant=mutant, causes=causes, launcher="matmul", cases=cases)


SUMS = (
    _bug("tail of K left out", (_LOOP, "for k in range(0, K - K % BLOCK_K, BLOCK_K):"), causes=("without its last K tail",)),
    _bug("last block left out", (_LOOP, "for k in range(0, K - BLOCK_K, BLOCK_K):"),
         causes=("without its last K tail", "without the last")),
    _bug("mask one too short", (_A, _A.replace("< K - k", "< K - k - 1")), causes=(r"without the last of K \(k = \d+,",)),
    _bug("first block left out",
         (_LOOP, "a_ptrs += BLOCK_K * stride_ak\n    b_ptrs += BLOCK_K * stride_bk\n    for k in range(BLOCK_K, K, BLOCK_K):"),
         causes=(r"without k = 0 to 31",)),
    _bug("first element skipped",
         (_A, "a = tl.load(a_ptrs, mask=(offs_k[None, :] < K - k) & (offs_k[None, :] + k > 0), other=0.0)"),
         causes=(r"without k = 0$",)),
    _bug("element 31 used twice",
         (_DOT, _DOT + "\n        if k == 0:\n            acc = tl.dot(tl.where(offs_k[None, :] == 31, a, 0.0), b, acc)"),
         causes=("element k = 31 used twice",)),
    _bug(
        "tail used twice",
        (
            "        b_ptrs += BLOCK_K * stride_bk\n",
            "        b_ptrs += BLOCK_K * stride_bk\n        if k + BLOCK_K >= K:\n            acc = tl.dot(a, b, acc)\n",
        ),
        causes=(r"elements k = (96|64) to \d+ used twice",),
    ),
    _bug("sum begun anew", (_DOT, "acc = tl.dot(a, b)"), causes=("last block of k alone",)),
    _bug("K past 64 dropped", (_LOOP, "for k in range(0, min(K, 64), BLOCK_K):"), causes=(r"k = 64 to \d+",)),
    _bug("every second block", (_LOOP, "for k in range(0, K, 2 * BLOCK_K):"),
         (_STEP_A, "        a_ptrs += 2 * BLOCK_K * stride_ak\n"), ("b_ptrs += BLOCK_K", "b_ptrs += 2 * BLOCK_K"),
         causes=(r"without k = 32 to 63",)),
    _bug("A stands still", (_STEP_A, ""), causes=("a at k = 0 to 31 for each block",)),
)  # fmt: skip
PLACES = (
    _bug("rows one on", (_ROWS, "a_ptrs = a_ptr + ((offs_m + 1) % M)"), causes=(r"a at m \+ 1", "row 1 after")),
    _bug("columns one back", (_COLUMNS, "((offs_n + N - 1) % N)[None, :]"), causes=(r"b at n - 1", "column 1 before")),
    _bug("result transposed", (_PLACES, "c_ptrs = c_ptr + offs_m[:, None] * stride_cn + offs_n[None, :] * stride_cm"),
         causes=("rows and columns of the result exchanged",), cases=({"m": 128, "n": 128, "k": 77}, {"m": 70, "n": 70, "k": 33})),
    _bug("tile transposed", (_INSIDE, "    if pid_m == 1 and pid_n == 0:\n        acc = tl.trans(acc)\n" + _INSIDE),
         causes=(r"rows and columns exchanged \(in tile \(1, 0\)",), cases=({"m": 192, "n": 128, "k": 77},)),
    _bug("programs exchanged", ("pid_m = tl.program_id(0)", "pid_m = tl.num_programs(0) - 1 - tl.program_id(0)"),
         ("a_ptrs = a_ptr + (offs_m % M)", "a_ptrs = a_ptr + ((tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)) % M)"),
         causes=(r"tiles \(0, 0\) and \(1, 0\)",), cases=({"m": 128, "n": 128, "k": 77},)),
    _bug("neighbouring rows exchanged", (_ROWS, "a_ptrs = a_ptr + ((offs_m ^ 1) % M)"),
         causes=("neighbour",), cases=({"m": 128, "n": 70, "k": 77},)),
    _bug("first row for all", (_ROWS, "a_ptrs = a_ptr + (offs_m * 0)"), causes=(r"a at m = 0 for all", "rows hold what row 0")),
    _bug("rows modulo the tile", (_ROWS, "a_ptrs = a_ptr + (tl.arange(0, BLOCK_M) % M)"),
         causes=(r"hold[s]? what tile \(0, ", "a at m = 0 to 63 for each")),
    _bug("grid rounded down", (_GRID, "grid = (max(M // 64, 1), triton.cdiv(N, 64))"), causes=("never wrote", "never written")),
    _bug("one program returns", (_INSIDE, "    if pid_m == 1 and pid_n == 1:\n        return\n" + _INSIDE),
         causes=(r"program \(1, 1\) never wrote its tile",)),
    _bug("last row not stored", (_STORE, _STORE.replace("< M", "< M - 1")), causes=(r"row \d+ never written",)),
    _bug("tile of zeros", (_INSIDE, "    if pid_n == 1:\n        acc = acc * 0\n" + _INSIDE), causes=(r"zeros",)),
)  # fmt: skip
EPILOGUES = (
    _bug("sign", (_STORE, _STORE.replace("acc.to", "(-acc).to")), causes=("other sign",)),
    _bug("twice the result", (_STORE, _STORE.replace("acc.to", "(acc * 2).to")), causes=("times 2",)),
    _bug("divided by K", (_STORE, _STORE.replace("acc.to", "(acc / K).to")), causes=(r"times 1/\d+ \(the size of (an axis|k)",)),
    _bug("one added", (_STORE, _STORE.replace("acc.to", "(acc + 1).to")), causes=("plus 1",)),
    _bug("negative cut", (_STORE, _STORE.replace("acc.to", "tl.maximum(acc, 0.0).to")), causes=("negative .* zero",)),
    _bug("magnitude", (_STORE, _STORE.replace("acc.to", "tl.abs(acc).to")), causes=("magnitude of the result",)),
)
ROUNDINGS = (
    _bug("bf16 before the store", (_STORE, _STORE.replace("acc.to", "acc.to(tl.bfloat16).to")),
         causes=("rounded to bf16 before the store",)),
    _bug("e5m2 before the store", (_STORE, _STORE.replace("acc.to", "acc.to(tl.float8e5).to")),
         causes=("rounded to e5m2 before the store",)),
    _bug("cut at the store", (_STORE, _STORE.replace("acc.to(tl.float16)", 'acc.to(tl.float16, fp_downcast_rounding="rtz")')),
         causes=("truncated",)),
    _bug("fp16 accumulator", (_ZERO, _ZERO.replace("float32", "float16")),
         (_DOT, "acc = tl.dot(a, b, acc, out_dtype=tl.float16)"), causes=("accumulated in fp16",),
         cases=({"m": 70, "n": 70, "k": 500}, {"m": 150, "n": 130, "k": 405})),
    _bug("fp16 after each block", (_DOT, _DOT + "\n        acc = acc.to(tl.float16).to(tl.float32)"),
         causes=("accumulated in fp16",), cases=({"m": 70, "n": 70, "k": 500}, {"m": 150, "n": 130, "k": 405})),
    _bug("bf16 after each block", (_DOT, _DOT + "\n        acc = acc.to(tl.bfloat16).to(tl.float32)"),
         causes=("accumulated in bf16",), cases=({"m": 70, "n": 70, "k": 500}, {"m": 150, "n": 130, "k": 405})),
    _bug("A through bf16", (_DOT, "acc = tl.dot(a.to(tl.bfloat16).to(tl.float16), b, acc)"), causes=("a rounded to bf16 first",)),
    _bug("both through e5m2", (_DOT, "acc = tl.dot(a.to(tl.float8e5).to(tl.float16), b.to(tl.float8e5).to(tl.float16), acc)"),
         causes=("a and b rounded to e5m2 first",)),
)  # fmt: skip

UNWRITTEN = (
    _bug("added to what nobody zeroed", (_ALLOCATED, _ALLOCATED.replace("a.dtype", "torch.float32")),
         (_STORE, _STORE.replace("tl.store", "tl.atomic_add").replace("acc.to(tl.float16)", "acc")),
         ("    return c\n", "    return c.to(a.dtype)\n"),
         causes=(r"uninitialised words \([^:]*:\d+\): tensor 2 \(empty\), c_ptr .* with zeros there",)),
    _bug("begun with what the result held",
         (_INSIDE, "    acc += tl.load(c_ptrs, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))\n" + _INSIDE),
         causes=(r"uninitialised words \([^:]*:\d+\): tensor 2 \(empty\), c_ptr .* with zeros there",)),
)  # fmt: skip

BUGS = (*SUMS, *PLACES, *EPILOGUES, *ROUNDINGS, *UNWRITTEN)
