"""python -m postgrad: the command."""

import sys

from postgrad.cli import main

sys.exit(main())
