"""``python -m harness``, the old name of the command, for one more version: it says the new one and does what it does."""

from __future__ import annotations

import sys

sys.modules.pop("harness", None)  # it was imported to find this file; its modules go by bitverdict.harness

if __name__ == "__main__":
    from bitverdict.__main__ import entry

    print("python -m harness is called bitverdict now; the old name goes with the next version", file=sys.stderr)
    entry()
