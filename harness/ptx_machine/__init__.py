"""PTX executed thread by thread, vectorised over the threads of many CTAs: a kernel of any language that ends in PTX, and a check
on what the compiler does below the tile program.

`program` reads the PTX of one kernel, `threads` runs it, `memory` keeps global and shared memory with who touched which byte,
`warp_instructions` has what the lanes of a warp do together. An instruction that is not executed here is refused by name, with its
line, before anything runs.
"""
