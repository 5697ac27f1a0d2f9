"""The stage is set: runners, queues, and a look at what is left of them."""

from tests.story.stage import drain, look_at, new_runner, prefix, runner, url

__all__ = ["drain", "look_at", "new_runner", "prefix", "runner", "url"]
