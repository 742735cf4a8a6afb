"""``leave_out.py [--same] WHOLE LOCK...``: a lock without what the others pin and without what vLLM on a CPU must not find.

``--same``: packages that the others pin in another version stay, as an environment beside the engines' needs them.
"""

import re
import sys
from pathlib import Path

#: PyPI's builds for CUDA, which do not load beside a CPU build of torch, and what torch itself brings
UNWANTED = re.compile(r"torchvision|torchaudio|torchcodec|triton|nvidia-|cuda-")


def blocks(path: str) -> dict[str, str]:
    """Package -> its lines."""
    text = "".join(line for line in Path(path).read_text().splitlines(True) if not line.startswith("#"))
    return {block.split("==")[0]: block for block in re.split(r"\n(?=\S)", text.strip())}


def pins(path: str) -> set[tuple[str, str]]:
    """Packages with their versions."""
    return {(name, block.split()[0]) for name, block in blocks(path).items()}


if __name__ == "__main__":
    same, (whole, *locks) = "--same" in sys.argv, [path for path in sys.argv[1:] if path != "--same"]
    others = set().union(*map(pins, locks))
    names = {name for name, _ in others}
    for name, block in blocks(whole).items():
        pinned = (name, block.split()[0]) in others if same else name in names
        if not pinned and not UNWANTED.match(name):
            print(block)
