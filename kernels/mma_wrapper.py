"""An accumulator in tensor memory, with the barrier that says when the last multiplication into it is over.

The wrapper keeps the two facts that are easily lost between the turns of a persistent loop: whether the next product replaces the
accumulator or adds to it, and which phase of the barrier belongs to the last product issued.

No annotation is postponed here: before Triton 3.8 an aggregate takes none that is a text.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tensor_memory_descriptor,
)
from triton.language import core


@(gluon.aggregate if hasattr(gluon, "aggregate") else core._aggregate)  # older releases of Gluon have no name of their own for it
class Accumulator:
    """A tile of sums in tensor memory. Every method returns the wrapper to go on with; the old one is stale."""

    cells: tensor_memory_descriptor
    barrier: gl.shared_memory_descriptor
    issue_count: gl.tensor
    keeps: gl.tensor

    @gluon.constexpr_function
    def __init__(self, cells, done, issued, keeps):
        self.cells = cells
        self.barrier = done
        self.issue_count = issued
        self.keeps = keeps

    @gluon.jit
    def of_tile(BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
        """An accumulator whose first product replaces what tensor memory holds."""
        cells = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1))
        done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(done, count=1)
        return Accumulator(cells, done, gl.to_tensor(0), gl.to_tensor(False))

    @gluon.jit
    def multiply(self, a, b):
        """Issues sums (+)= a b, a (BLOCK_M, BLOCK_K), b (BLOCK_K, BLOCK_N) in shared memory, which stay untouched until
        `settle`."""
        tcgen05_mma(a, b, self.cells, use_acc=self.keeps)
        tcgen05_commit(self.barrier)
        return Accumulator(self.cells, self.barrier, self.issue_count + 1, gl.to_tensor(True))

    @gluon.jit
    def settle(self):
        """Waits until every product issued so far is over; at once where there was none: of a new barrier the phase before is."""
        mbarrier.wait(self.barrier, (self.issue_count + 1) & 1)

    @gluon.jit
    def read_sums(self):
        """The settled sums (BLOCK_M, BLOCK_N) in registers, and the wrapper, whose next product replaces them."""
        return self.cells.load(), Accumulator(self.cells, self.barrier, self.issue_count, gl.to_tensor(False))
