"""``leave_out.py WHOLE LOCK...``: a lock without what the others pin and without what vLLM on a CPU must not find."""

import re
import sys
from pathlib import Path

#: PyPI's builds for CUDA, which do not load beside a CPU build of torch, and what torch itself brings
UNWANTED = re.compile(r"torchvision|torchaudio|torchcodec|triton|nvidia-|cuda-|flash-attn|bitsandbytes")


def blocks(path: str) -> dict[str, str]:
    """Package -> its lines."""
    text = "".join(line for line in Path(path).read_text().splitlines(True) if not line.startswith("#"))
    return {block.split("==")[0]: block for block in re.split(r"\n(?=\S)", text.strip())}


if __name__ == "__main__":
    others = {name for path in sys.argv[2:] for name in blocks(path)}
    for name, block in blocks(sys.argv[1]).items():
        if name not in others and not UNWANTED.match(name):
            print(block)
