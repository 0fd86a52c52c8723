"""What each outcome means, how it usually comes about, and what to do: `bitverdict explain`, and docs/outcomes.md."""

from __future__ import annotations

from dataclasses import dataclass

from bitverdict.harness.model.verdict import Outcome


@dataclass(frozen=True)
class OutcomePage:
    """`meaning`: what was observed. `usual_cause`: how a kernel comes to it. `remedy`: what to look at or write."""

    meaning: str
    usual_cause: str
    remedy: str


PAGES = {
    Outcome.PASS: OutcomePage(
        "Every result is what the contract expects: the same bits, inside the derived bound, or the failure that was expected.",
        "The kernel is right in this case.",
        "Nothing. `-v` prints the basis: whether bits, a bound or an expected failure decided.",
    ),
    Outcome.WRONG_WORDS: OutcomePage(
        "Some results have other bits than the target's arithmetic gives, where those bits are known.",
        "Another order of sums, a rounding too many, a wrong mask or stride; the cause names it where it predicts every value.",
        "Read the cause. Without one, compare the first wrong elements under `-v` and where they lie in the picture.",
    ),
    Outcome.OUTSIDE_BOUND: OutcomePage(
        "A result is further from the exact value than any implementation that sums in the declared type can be.",
        "A wrong formula, or less precision than declared, where the case cannot distinguish the two.",
        "Compute sums and exponentials in fp32, or declare the type of the sum: `bv.judged(accumulation=...)`.",
    ),
    Outcome.WRONG_MATHEMATICS: OutcomePage(
        "Computed without any rounding, the kernel still gives something else than the reference. No tolerance would excuse it.",
        "A forgotten mask, a wrong axis or stride, a wrong constant, an accumulator that is overwritten.",
        "Read the cause. If the kernel is meant to compute this, the reference is wrong: correct it.",
    ),
    Outcome.LOST_PRECISION: OutcomePage(
        "The formula is right, but rounding on the way loses more than the bound allows.",
        "A sum in fp16 or bf16, an early conversion, a cancellation, tf32 where fp32 is meant, a fast division.",
        'Convert to fp32 before the first line of `error by line`, or declare it: `bv.judged(accumulation="fp16")`.',
    ),
    Outcome.WRONG_SHAPE: OutcomePage(
        "An output has another shape, type or number than the reference says.",
        "The output was allocated with the input's type or shape, or only one of several results is returned.",
        "Correct the `torch.empty` of the launcher, or name the formats: `bv.judged(returns=...)`.",
    ),
    Outcome.STRAY_WRITE: OutcomePage(
        "The kernel writes memory that its tensor's sizes and strides do not reach.",
        "A store without a mask, or a mask that compares with the wrong size.",
        "Mask the store: `tl.store(p, v, mask=offsets < n)`.",
    ),
    Outcome.STRAY_READ: OutcomePage(
        "The kernel reads memory that its tensor's sizes and strides do not reach, even if the value is not used.",
        "A load without a mask in the tail of a row or of K; a row stride taken for the number of columns.",
        "Mask the load and say what stands in its place: `tl.load(p, mask=offsets < n, other=0.0)`.",
    ),
    Outcome.INPUT_CHANGED: OutcomePage(
        "An operand that the contract does not list as an output has other bits after the launch.",
        "An in-place operation on an input, or a store through the wrong pointer.",
        "Copy the operand first; or return it from the body, if it is an output.",
    ),
    Outcome.ILLEGAL_INSTRUCTION: OutcomePage(
        "The GPU refuses an instruction, or an operand of it, while the kernel runs.",
        "A descriptor or barrier of a wrong form; tensor memory used after it was freed.",
        "Look at the operation of the named line: its alignment, its sizes, the life of its buffer.",
    ),
    Outcome.ILLEGAL_ADDRESS: OutcomePage(
        "An access lies in no tensor of the launch. On a GPU this kills the context.",
        "An offset that overflows 32 bits, a wrong stride, a missing mask, a pointer to memory of the host.",
        "Mask the access; widen the offset with `.to(tl.int64)` before it is multiplied.",
    ),
    Outcome.MISALIGNED_ADDRESS: OutcomePage(
        "An access is not aligned to its own size.",
        "A pointer cast to a wider type, or a view that begins at an odd element.",
        "Require the alignment in the launcher, or load the narrow type.",
    ),
    Outcome.FALSE_HINT: OutcomePage(
        "The kernel tells the compiler what is not so (`tl.multiple_of`, `tl.max_contiguous`, ...), and memory is touched by it.",
        "A hint that holds for aligned sizes alone.",
        "Remove the hint, or launch that kernel only where it holds.",
    ),
    Outcome.DEVICE_ASSERT: OutcomePage(
        "A `tl.device_assert` of the kernel did not hold.",
        "The case breaks what the kernel assumes.",
        "If the assumption is a rule of the launcher, draw only cases that keep it; else fix the kernel.",
    ),
    Outcome.LAUNCH_FAILURE: OutcomePage(
        "The driver could not start the kernel, or it ended with a failure that has no name of its own.",
        "A grid of a size that is not allowed, or an earlier failure of the same process.",
        "Look at the grid and at the text of the driver in the report.",
    ),
    Outcome.RACE: OutcomePage(
        "Two accesses touch the same memory, at least one writes, and nothing orders them.",
        "Programs that add to one element without an atomic; a wait or barrier too few between an asynchronous copy and its use.",
        "The report names both lines. Use `tl.atomic_add`, give each program its own elements, or wait before the second access.",
    ),
    Outcome.UNINITIALISED_READ: OutcomePage(
        "A value that was never written reaches a result.",
        "An accumulator from `torch.empty` instead of `torch.zeros`; a block of shared memory that is read before it is filled.",
        "Initialise it, or write every element that is read.",
    ),
    Outcome.BARRIER_MISUSE: OutcomePage(
        "An mbarrier is used against its rules: wrong count, phase or life.",
        "Arrivals that do not match the count; a phase that is not flipped; a barrier used before `init` or after `invalidate`.",
        "Follow the timeline under `-v`, and count arrivals and phases of the named barrier.",
    ),
    Outcome.DEADLOCK: OutcomePage(
        "Every program and partition waits, and none of them can go on.",
        "A wait for a phase that never completes, or for a program that is not resident.",
        "The report names who waits where. Let every waiter have an arrival, and launch no more programs than fit together.",
    ),
    Outcome.TIMEOUT: OutcomePage(
        "The case did not end within its time.",
        "A loop that does not end, a spin on a flag that is never set; seldom a large case on a slow machine.",
        "The report names the line it was at. `--timeout SECONDS` gives more time.",
    ),
    Outcome.KILLED: OutcomePage(
        "The process that judged the case was ended from outside.",
        "The system's memory killer, or a person.",
        "Judge with fewer `--jobs`, or draw smaller sizes.",
    ),
    Outcome.SEGMENTATION_FAULT: OutcomePage(
        "The process crashed in native code while it compiled or launched the kernel.",
        "A fault of the compiler or of an extension; a pointer of a freed tensor.",
        "Replay it with `--in-process` under a debugger; report it to the compiler if it crashes there.",
    ),
    Outcome.COMPILER_ABORT: OutcomePage(
        "Triton's compiler ended the process, or stopped at an assertion of its own.",
        "A form of program that this release cannot compile.",
        "Try the form that the report's last operation suggests, or another release of Triton.",
    ),
    Outcome.COMPILER_FAULT: OutcomePage(
        "The compiled program has a hazard that the kernel's source does not have.",
        "A known fault of a Triton release, such as a missing fence.",
        "The report has the workaround, where one is known; the kernel itself is right.",
    ),
    Outcome.REFUSED: OutcomePage(
        "The launcher or the compiler refused a case that the contract says is legal.",
        "An assertion in the launcher, an unsupported type, a size that is no multiple of a block.",
        "If it is meant, say so: draw less, or `launcher.requires = lambda ...`. Else serve the case.",
    ),
    Outcome.NOT_REFUSED: OutcomePage(
        "The kernel ran where the contract expects a refusal or a named failure.",
        "A check that was removed, or a compiler that accepts more than before.",
        "Put the check back, or change what the contract expects.",
    ),
    Outcome.OUT_OF_RESOURCES: OutcomePage(
        "The compiled kernel needs more shared memory, registers, threads or tensor memory than the target has.",
        "Blocks or stages that are too large for this GPU.",
        "Use smaller blocks or fewer stages on it; autotuned kernels need a configuration that fits.",
    ),
    Outcome.OUT_OF_MEMORY: OutcomePage(
        "The host or the GPU had no memory for the case. It says nothing about the kernel.",
        "A large case beside other work.",
        "Judge with fewer `--jobs`, or draw smaller sizes.",
    ),
    Outcome.BEHAVES_DIFFERENTLY: OutcomePage(
        "The kernel gives other bits, or fails otherwise, on the real GPU than on the emulated one.",
        "A race that shows on one of them, a kernel that asks what GPU it is on, or a fault of the emulator.",
        "Replay the case on both. If the kernel is right, please report it.",
    ),
    Outcome.NOT_MODELLED: OutcomePage(
        "The emulator does not know an operation of the kernel. Nothing has run, and it says nothing about the kernel.",
        "Inline assembly, or an operation that is new in this release.",
        "Judge it on a real GPU (`--target cuda:0`); docs/emulator.md lists what is modelled.",
    ),
    Outcome.OTHER_INSTRUCTIONS: OutcomePage(
        "The results are right, but an option of the kernel does not do what it says: other instructions ran.",
        "An option that is not handed on to the launch.",
        "Hand it on; the report says which option promised what.",
    ),
    Outcome.COMPUTED_ON_HOST: OutcomePage(
        "The results are right, and no kernel of the call has stored them.",
        "The launcher falls back to torch.",
        "Launch the kernel, or judge the function by an ordinary test: bitverdict judges kernels.",
    ),
    Outcome.LAUNCHER_ERROR: OutcomePage(
        "The launcher raised an exception, before or after its launches.",
        "A shape or type it does not handle; an import that is missing.",
        "The report has the exception and its line. If the case is not meant, draw less or say `requires`.",
    ),
    Outcome.STATE_KEPT: OutcomePage(
        "A second equal call gives another result: something of the first one stayed.",
        "A cached buffer, a counter or lock that is not reset, a result that is added to.",
        "Reset what is kept at the start of each call.",
    ),
    Outcome.UNCHANGED: OutcomePage(
        "The result stays the same when the operands change.",
        "A cached result, or an operand that is never read.",
        "Key the cache by the operands' contents, or compute anew.",
    ),
    Outcome.MEMORY_RETURNED: OutcomePage(
        "The launcher returned memory that it had returned before, while that result may still be used.",
        "An output buffer kept between calls.",
        "Allocate the output in each call.",
    ),
    Outcome.WORDS_CHANGED: OutcomePage(
        "The result changed after the launcher had returned it.",
        "Work on another stream or thread that the launcher does not wait for.",
        "Synchronise before the return, or launch on the current stream.",
    ),
    Outcome.NOT_INVARIANT: OutcomePage(
        "A call that must give equal bits gives other ones: repeated, elsewhere in memory, or with fewer rows.",
        "Atomics whose order changes; blocks or splits that depend on the batch's size.",
        "Choose blocks and splits by the row alone; sum in a fixed order. docs/invariance.md has more.",
    ),
    Outcome.INCONCLUSIVE: OutcomePage(
        "The case cannot tell a right kernel from a wrong one. It never counts as a pass.",
        "All values are infinite, or the bound is so wide that anything fits.",
        "Other cases decide. Where all are inconclusive, draw smaller sizes, or another range: `draw.tensor(values=(0, 1))`.",
    ),
    Outcome.NOT_RUN: OutcomePage(
        "Nothing was launched: the target, or this release of Triton, lacks what the kernel needs.",
        "A kernel for Blackwell on a target for Ampere; a name that another release brought.",
        "Choose a target that has it: `bitverdict targets`.",
    ),
    Outcome.CANCELLED: OutcomePage(
        "The run was ended before this case was judged.",
        "Ctrl-C, or a time limit of the run.",
        "`bitverdict run --resume` goes on where it ended.",
    ),
    Outcome.ERROR: OutcomePage(
        "bitverdict, the contract or the machine failed. It says nothing about the kernel.",
        "A fault of ours, a full disk, a reference that raises.",
        "The report says which. If it is ours, please report it with the file that it names.",
    ),
}
