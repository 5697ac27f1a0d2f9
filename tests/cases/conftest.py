"""The stage is set: runners, worker processes, and a look at what is left of their queues."""

from tests.faults.crew import crew
from tests.story.stage import drain, look_at, new_runner, prefix, runner, url

__all__ = ["crew", "drain", "look_at", "new_runner", "prefix", "runner", "url"]
