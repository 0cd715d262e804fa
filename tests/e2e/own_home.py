"""A home of a test's own, so that what an earlier run cached or tuned changes nothing; checkpoints are shared."""

from __future__ import annotations

from pathlib import Path


def own_home(folder: Path) -> dict[str, str]:
    """The environment that gives `bitgear up` an empty state below `folder`, with the checkpoints of the user's home."""
    home = folder / "home"
    home.mkdir()
    for name in ("models", "downloads"):
        made = Path("~/.bitgear").expanduser() / name
        made.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(made, target_is_directory=True)
    return {"BITGEAR_LOCAL__HOME": str(home)}
