"""The benchmark measures what it says, on a small scale."""
