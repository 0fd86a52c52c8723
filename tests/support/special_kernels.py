"""Kernels of one operation, on 32 elements, whose machine code is read."""

import triton
import triton.language as tl


@triton.jit
def exp(values, results):
    at = tl.arange(0, 32)
    tl.store(results + at, tl.exp(tl.load(values + at)))


@triton.jit
def exp2(values, results):
    at = tl.arange(0, 32)
    tl.store(results + at, tl.exp2(tl.load(values + at)))


@triton.jit
def sigmoid(values, results):
    at = tl.arange(0, 32)
    tl.store(results + at, tl.sigmoid(tl.load(values + at)))


@triton.jit
def softmax(values, results):
    at = tl.arange(0, 32)
    tl.store(results + at, tl.softmax(tl.load(values + at)))


@triton.jit
def divide(values, results):
    at = tl.arange(0, 32)
    tl.store(results + at, tl.load(values + at) / tl.load(values + at + 1))
