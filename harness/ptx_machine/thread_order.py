"""Which accesses each thread knows to have ended: what barriers, and releases that are acquired, tell (PTX ISA, chapter 8)."""

from __future__ import annotations

import numpy as np

WARP = 32
ASYNC_EPOCH = 1 << 30  # epochs of the async proxy are beyond all of threads'
Rows = tuple[np.ndarray, np.ndarray | None]
"""What was released: the epochs of `Order.known`, and of `Order.fenced` where a program has the async proxy."""


class Order:
    """Which accesses each thread knows to have ended: `known` [threads, warps of its cluster and the async proxy], by the epoch of
    the warp. Epochs up to `first_epoch` are those of CTAs that ran before. Of generic writes `fenced` says which a proxy fence is
    known to be behind (PTX ISA 8.6), where a program has the async proxy. `threads` and `warps` are those of a cluster of
    `cluster_ctas` CTAs."""

    def __init__(self, ctas: int, threads: int, first_epoch: int = 0, *, cluster_ctas: int = 1, has_proxies: bool = False) -> None:
        self.cta_threads, self.threads, self.warps = threads, cluster_ctas * threads, cluster_ctas * threads // WARP
        self.known = np.full((ctas * threads, self.warps + 1), first_epoch, np.int32)
        self.fenced = self.known.copy() if has_proxies else None
        self.at_fence: np.ndarray | None = None  # what `known` was at the last fence of each thread
        self.before_fence: np.ndarray | None = None  # what each thread has read by relaxed accesses, and knows behind a fence
        self.async_epoch = np.full(ctas // cluster_ctas, ASYNC_EPOCH, np.int32)
        self.epoch = np.full(ctas * threads // WARP, first_epoch + 1, np.int32)  # of each warp of each CTA
        self._common: int | None = first_epoch

    @property
    def has_clusters(self) -> bool:
        return self.cta_threads < self.threads

    @property
    def common(self) -> int:
        """What was done up to this epoch every thread knows of, of every warp of its cluster."""
        if self._common is None:
            self._common = int(self.known[:, : self.warps].min())
        return self._common

    def synchronise(self, threads: np.ndarray) -> None:
        """`threads` of one cluster have met: each knows what any of them knew, and what they have done."""
        self.acquire(threads, *self.release(threads))

    def fence(self, threads: np.ndarray) -> None:
        """`threads` have executed a fence: what they know and have done is released by a relaxed arrival behind it."""
        if self.at_fence is None:
            self.at_fence = np.zeros_like(self.known)
        if self.before_fence is not None:
            self.acquire(threads, self.before_fence[threads], None)
        warps = threads // WARP
        self.at_fence[threads] = self.known[threads]
        self.at_fence[threads, warps % self.warps] = self.epoch[warps]
        self.epoch[np.unique(warps)] += 1

    def release(self, threads: np.ndarray, *, is_relaxed: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
        """What `threads` of one cluster make known to whoever acquires it: what any of them knew, and what they have done. A
        relaxed arrival makes known what was so at a fence before it."""
        warps = np.unique(threads // WARP)
        if is_relaxed:
            at_fence = np.zeros(self.warps + 1, np.int32) if self.at_fence is None else self.at_fence[threads].max(axis=0)
            return at_fence, None if self.fenced is None else np.minimum(self.fenced[threads].max(axis=0), at_fence)
        known = self.known[threads].max(axis=0)  # (warps of the cluster and the async proxy,)
        known[warps % self.warps] = self.epoch[warps]
        self.epoch[warps] += 1
        return known, None if self.fenced is None else self.fenced[threads].max(axis=0)

    def acquire(self, threads: np.ndarray, known: np.ndarray, fenced: np.ndarray | None) -> None:
        """`threads` of one cluster know of what was released."""
        self.known[threads] = np.maximum(self.known[threads], known)
        if self.fenced is not None and fenced is not None:
            self.fenced[threads] = np.maximum(self.fenced[threads], fenced)
        self._common = None

    def release_rows(self, threads: np.ndarray, *, is_relaxed: bool) -> Rows:
        """As `release`, of each of `threads` by itself: [threads, warps of the cluster and the async proxy]."""
        if is_relaxed:
            known = np.zeros_like(self.known[threads]) if self.at_fence is None else self.at_fence[threads]
            return known, None if self.fenced is None else np.minimum(self.fenced[threads], known)
        known, warps = self.known[threads], threads // WARP
        known[np.arange(len(threads)), warps % self.warps] = self.epoch[warps]
        self.epoch[np.unique(warps)] += 1
        return known, None if self.fenced is None else self.fenced[threads]

    def acquire_rows(self, threads: np.ndarray, rows: Rows, *, waits_for_fence: bool) -> None:
        """Each of `threads` knows of what its row says, or will know behind its next fence."""
        if not waits_for_fence:
            self.acquire(threads, *rows)
            return
        if self.before_fence is None:
            self.before_fence = np.zeros_like(self.known)
        self.before_fence[threads] = np.maximum(self.before_fence[threads], rows[0])

    def fence_proxy(self, threads: np.ndarray) -> None:
        """`threads` have executed fence.proxy.async: generic writes that they know of, and their own, are before what follows."""
        assert self.fenced is not None
        self.fenced[threads] = np.maximum(self.fenced[threads], self.known[threads])
        warps = threads // WARP
        self.fenced[threads, warps % self.warps] = self.epoch[warps]
        self.epoch[np.unique(warps)] += 1

    def synchronise_ctas(self, ctas: np.ndarray) -> None:
        """All threads of each of `ctas` have met."""
        if self.has_clusters:
            for cta in ctas.tolist():
                self.synchronise(np.arange(cta * self.cta_threads, (cta + 1) * self.cta_threads))
            return
        epochs = self.epoch.reshape(-1, self.warps)
        known = self.known.reshape(-1, self.threads, self.warps + 1)
        by_async = known[ctas, :, -1].max(axis=1)
        known[ctas, :, :-1] = epochs[ctas][:, None, :]
        known[ctas, :, -1] = by_async[:, None]
        if self.fenced is not None:
            fenced = self.fenced.reshape(known.shape)
            fenced[ctas] = fenced[ctas].max(axis=1, keepdims=True)
        epochs[ctas] += 1
        self._common = None

    def synchronise_warps(self, threads: np.ndarray) -> None:
        """The `threads` of each warp have met (bar.warp.sync)."""
        threads = np.sort(threads)
        numbers, first, counts = np.unique(threads // WARP, return_index=True, return_counts=True)
        known = np.maximum.reduceat(self.known[threads], first)  # (warps that met, warps of the cluster and the async proxy)
        known[np.arange(len(numbers)), numbers % self.warps] = self.epoch[numbers]
        self.known[threads] = np.repeat(known, counts, axis=0)
        if self.fenced is not None:
            self.fenced[threads] = np.repeat(np.maximum.reduceat(self.fenced[threads], first), counts, axis=0)
        self.epoch[numbers] += 1
        self._common = None

    def epoch_of(self, threads: np.ndarray) -> np.ndarray:
        return self.epoch[threads // WARP]

    def knows(self, threads: np.ndarray, others: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """Whether each of `threads` knows what the thread of its cluster in `others` did in its warp's `epochs`."""
        return (others == threads) | (self.known[threads, others // WARP % self.warps] >= epochs)
