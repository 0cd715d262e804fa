from __future__ import annotations

import pytest

from classifier.scoring import Trained, load


@pytest.fixture(scope="session")
def classifier() -> Trained:
    return load()
