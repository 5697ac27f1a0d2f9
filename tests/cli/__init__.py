"""The command line: real processes, real signals, a real server."""
