"""y[i] = the sum of table[rows[i, j]] * weights[i, j] over the first counts[i] places j, divided by their count."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def embedding_bag_kernel(table_ptr, rows_ptr, weights_ptr, counts_ptr, y_ptr, most, d, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    count = tl.load(counts_ptr + bag)
    for place in range(count):
        row = tl.load(rows_ptr + bag * most + place)
        weight = tl.load(weights_ptr + bag * most + place)
        acc += weight * tl.load(table_ptr + row * d + cols, mask=cols < d, other=0.0)
    tl.store(y_ptr + bag * d + cols, acc / tl.maximum(count, 1), mask=cols < d)


def embedding_bag(table, rows, weights, counts):
    bags, most = rows.shape
    d = table.shape[1]
    y = torch.empty((bags, d), dtype=torch.float32, device=table.device)
    embedding_bag_kernel[(bags,)](table, rows, weights, counts, y, most, d, BLOCK=triton.next_power_of_2(d))
    return y


def reference(xp, table, rows, weights, counts):
    inside = xp.arange(rows.shape[1]) < counts[:, None]
    terms = xp.take(table, xp.reshape(rows, (-1,)), axis=0)
    terms = xp.reshape(terms, (*rows.shape, -1)) * weights[:, :, None]
    total = xp.sum(xp.where(inside[:, :, None], terms, 0.0), axis=1)
    return total / xp.maximum(counts, xp.asarray(1, dtype=xp.int32))[:, None]


@bv.judged(reference=reference)
def test_embedding_bag(draw):
    size, d, bags, most = draw.size(1, 20), draw.size(1, 40), draw.size(1, 9), draw.size(1, 7)
    table, rows = draw.tensor("fp32", (size, d)), draw.indices((bags, most), size)
    return embedding_bag(table, rows, draw.tensor("fp32", (bags, most)), draw.integers(bags, 0, most))
