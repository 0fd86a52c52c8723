"""Cases under Triton's sanitizers and compute-sanitizer."""
