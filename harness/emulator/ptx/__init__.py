"""PTX executed on words, many elements at once: what libdevice's functions and inline assembly compute.

A libdevice function has no closed form that decides its last bit; its PTX has. So a kernel of that one operation is compiled by the
real compiler for the target (`frontend/compiled_operations.py`). Its PTX is read (`text`) and executed with one lane an element
(`lanes`), each instruction by its definition in the PTX ISA (`integers`, `floats`, `conversions`), with the arithmetic of
`reference`. A known opcode is executed, an unknown one is refused by name before anything runs.
"""
