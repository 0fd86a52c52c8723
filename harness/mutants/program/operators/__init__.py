"""What may go wrong in a tile program, a file a subject. An operator is a function from a place to the mutants that it offers there."""
