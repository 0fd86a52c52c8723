"""From the compiler's program to the Python that a CTA runs."""
