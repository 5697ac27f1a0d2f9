"""A loopback port that nobody else takes, not even while its server restarts."""

import random
import socket

# Below the range that Linux gives to outgoing connections (32768 and up), one of which could sit on the port of a
# server that is down for a moment. pytest-randomly seeds `random` alike in every xdist worker, so not with that.
_CHOICE = random.SystemRandom()
_FIRST, _LAST = 20_000, 32_000


def free_port() -> int:
    for _ in range(100):
        port = _CHOICE.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # taken: try another
                continue
            return port
    raise RuntimeError(f"no free loopback port found between {_FIRST} and {_LAST}")
