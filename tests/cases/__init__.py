"""Cases from real life, each reported against some task queue in use; the number is that of the list they came from."""
