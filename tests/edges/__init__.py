"""One table a script: each state, a late call, a second call, on all four servers."""
