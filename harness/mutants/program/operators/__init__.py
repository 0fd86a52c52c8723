"""What may go wrong in a tile program, a file a subject. An operator gives the mutants that it offers at a place."""
