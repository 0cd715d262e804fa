from __future__ import annotations

import pytest
from hypothesis import settings

from classifier.scoring import Trained, load


@pytest.fixture(scope="session")
def classifier() -> Trained:
    return load()


# A loaded machine is slow now and then: time is measured where a test is about time.
settings.register_profile("classifier", deadline=None)
settings.load_profile("classifier")
