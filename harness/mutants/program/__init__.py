"""Mutants of the compiled tile program: changed in its text and executed, without compiling again."""
