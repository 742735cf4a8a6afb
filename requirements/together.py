"""``together.py LOCK...``: the pins of several locks without hashes; where several pin a package the last counts."""

import re
import sys
from pathlib import Path

PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)

if __name__ == "__main__":
    together = dict(pin for path in sys.argv[1:] for pin in PIN.findall(Path(path).read_text()))
    print("\n".join(f"{name}=={version}" for name, version in sorted(together.items())))
