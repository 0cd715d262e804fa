"""From a backend's settings to the variant that the proxy sees."""

from __future__ import annotations

import pytest

from router.config.variant import base_url


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_base_url(url: str) -> None:
    assert base_url(url) == "http://h:1"
