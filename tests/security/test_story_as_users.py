"""The story again, but its runner is a user with the rights of the four roles, and nothing that they do not name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis import Redis

from firetime.store.rights import ROLES, rights_of, rules
from tests.conftest import _leave_clean
from tests.kit.servers import ServerProcess
from tests.story.test_08_unique import *  # noqa: F403
from tests.story.test_10_dead_letters import *  # noqa: F403
from tests.story.test_11_cancelling import *  # noqa: F403

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.shared import Shared

pytestmark = [pytest.mark.usefixtures("server"), pytest.mark.one_server]  # type: ignore[assignment]  # the story has marks of its own


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Shared) -> Iterator[ServerProcess]:
    """A server that has selectors and keys to be read only, one that has them anew, and one that knows neither."""
    lent = servers[request.param]
    assert isinstance(lent, ServerProcess)
    yield lent
    _leave_clean(lent)


@pytest.fixture
def url(server: ServerProcess, prefix: str) -> Iterator[str]:
    """The way in of the test's own user, who has been refused nothing when the test is over."""
    said = rules(rights_of(ROLES), prefix=prefix, per_key=server.kind != "redis62")
    with Redis.from_url(server.url, protocol=2) as admin:
        admin.execute_command("ACL", "SETUSER", "story", "reset", "on", ">pass", *said)
        admin.execute_command("ACL", "LOG", "RESET")
        yield server.url.replace("redis://", "redis://story:pass@")
        refused = [entry["object"] for entry in admin.acl_log()]
        admin.execute_command("ACL", "DELUSER", "story")
    assert refused == []
