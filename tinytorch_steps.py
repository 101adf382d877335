"""The command `tinytorch-steps`: `python -m steps`, from any folder."""

import sys
from pathlib import Path

MISSING = """\
tinytorch-steps shows the steps, and they are not part of the installed package.
Clone the repository, and in its folder run: pip install --editable .
"""


def main() -> int:
    """Run the companion of the repository that this file stands in. 2: there is none."""
    root = Path(__file__).resolve().parent
    if not (root / "steps" / "companion" / "cli.py").exists():
        print(MISSING, end="", file=sys.stderr)
        return 2
    sys.path.insert(0, str(root))
    from steps.companion.cli import main

    return main()
