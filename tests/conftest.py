"""What all tests share: how hypothesis looks for examples, and a cookiecutter that nobody has set up."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples in every run, and no deadline, as a machine's load is no property of the code.
# TABLEFERRY_EXAMPLES=10 looks at ten times as many.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    max_examples=settings().max_examples * int(os.environ.get("TABLEFERRY_EXAMPLES", "1")),
)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def cookiecutters_own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let cookiecutter see no settings of the user's, and keep nothing in the home folder."""
    folder = tmp_path_factory.mktemp("cookiecutter")
    config = folder / "config.yaml"
    config.write_text(f"replay_dir: {folder}/replay\ncookiecutters_dir: {folder}/cloned\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COOKIECUTTER_CONFIG", str(config))
        yield
