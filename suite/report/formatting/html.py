"""What pages of one file share: data that no parser ends early, sources that stay whole, and a policy of hashes."""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

#: Characters that end a script or start a comment in one, as JSON escapes.
_IN_SCRIPT = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def in_script(value: Any) -> str:
    """As JSON that no HTML parser ends early, in ASCII alone, so that nothing in it turns or hides text either."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_IN_SCRIPT)


def policy(scripts: Sequence[str], styles: Sequence[str], *more: str) -> str:
    """Nothing is loaded and nothing is run but what is in the file, and what ``more`` allows."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {' '.join(map(_hash, styles))}",
            *more,
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def source(path: Path) -> str:
    """A script or style of the suite, checked to be whole inside of its element."""
    text = path.read_text(encoding="utf-8")
    assert not any(end in text.lower() for end in ("</script", "</style", "<!--")), f"{path.name} would end its element"
    return text
