"""Command line, pytest plugin and the public functions: arguments in, exit status out, no policy."""
