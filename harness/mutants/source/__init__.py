"""Mutants of a kernel's source: operators over its concrete syntax tree (libcst), in the code that its launcher reaches."""
