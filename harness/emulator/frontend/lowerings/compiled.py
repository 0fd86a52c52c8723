"""Operations that the compiler expands: libdevice's functions by whatever name, and what `math` has of them."""

from __future__ import annotations

from bitverdict.harness.emulator.frontend.assembly import NotAssembled
from bitverdict.harness.emulator.frontend.compiled_operations import compiled, operation_of, takes_product
from bitverdict.harness.emulator.frontend.lowerings.sums import may_be_product
from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.ptx.opcodes import UnknownOpcode
from bitverdict.harness.emulator.ptx.text import NotPtx


@lowers("tt.extern_elementwise", "math.log", "math.log2", "math.sin", "math.cos", "math.erf")
def expanded(t: Translator, op: Operation) -> None:
    """The words of the PTX that the compiler makes of this operation alone. An unknown opcode is refused by its name.

    A sum behind it that takes in its last product is `sums`' to refuse: it asks the compiled program.
    """
    result = t.result(op)
    elements = tuple(t.operand(op, number).element for number in range(len(op.operands)))
    given = operation_of(op.name, op.attributes, elements, result.element)
    try:
        run = compiled(given, t.arch, t.fused)
        for number, name in enumerate(op.operands if t.fused else ()):
            if elements[number] in ("f32", "f64") and may_be_product(t, name) and takes_product(given, number, t.arch):
                said = f"of a product, operand {number}, that the compiler fuses with its first sum"
                raise NotModelled(op, f"{said}; compile with enable_fp_fusion=False")
    except (NotAssembled, NotPtx, UnknownOpcode) as error:
        raise NotModelled(op, str(error)) from error
    t.call(op, run)
