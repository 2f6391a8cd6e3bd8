"""Examples in README.md and CONTRIBUTING.md run in an empty folder, since they write files."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _empty_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if request.node.path.suffix == ".md":
        patch = request.getfixturevalue("monkeypatch")
        patch.chdir(tmp_path_factory.mktemp("examples"))
        assert Path.cwd() != request.config.rootpath
