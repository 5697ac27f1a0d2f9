"""A worker process of the run: ``python -m chaos.worker <post as JSON>``; it works until it is asked to stop, or killed."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from chaos import clock
from chaos.plan import Post


def main(words: str) -> None:
    """Works."""
    post = msgspec.json.decode(words, type=Post)
    folder = Path(post.folder)
    clock.live_by(folder / f"{post.slot}.clock")
    _work(post, folder)


def _work(post: Post, folder: Path) -> None:
    # only now: what is imported from here on sees the clock that is moved
    import asyncio

    from chaos.journal import Journal
    from chaos.pulse import tell_of_stalls
    from chaos.tasks import make_runner, register, tell_all

    journal = Journal(folder, post.slot)
    tell_of_stalls(journal)
    runner = make_runner(post.url, post.plan)
    register(runner, journal)
    tell_all(runner, journal)
    asyncio.run(runner.run())


if __name__ == "__main__":
    main(sys.argv[1])
