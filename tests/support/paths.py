"""Where things are: the repository, the tests, their recorded assets, and data that is never committed."""

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
ASSETS = TESTS / "assets"
DATA = Path(os.environ.get("POSTGRAD_DATA", ROOT.parent / "shared" / "data"))
