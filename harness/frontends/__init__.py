"""Command line and pytest plugin: arguments in, exit status out, no policy."""
