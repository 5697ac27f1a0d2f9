"""The stage of the story, and the certificates of a small public key infrastructure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.security.certificates import Authority
from tests.story.stage import drain, look_at, new_runner, prefix, runner, url

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["authority", "drain", "look_at", "new_runner", "other_authority", "prefix", "runner", "url"]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder: Path = tmp_path_factory.mktemp("ca")
    return Authority(folder)


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other-ca"))
