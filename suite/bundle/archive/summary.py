"""What commands say of an archive."""

from __future__ import annotations

from typing import Any

from suite.bundle.archive.index import Index
from suite.bundle.archive.signature import Signature


def scrubbed_line(index: Index) -> str:
    """What was taken out before it was packed, by whoever packed it."""
    if index.identity == "kept":
        return "identity: kept, as it was asked for"
    if not index.scrubbed:
        return "identity: nothing was found that had to be scrubbed"
    kinds = ", ".join(_counted(kind, found.distinct, found.places) for kind, found in index.scrubbed.items())
    return f"identity: scrubbed {kinds}"


def _counted(kind: str, distinct: int, places: int) -> str:
    where = f"{places} place{'s' * (places != 1)}"
    return f"{kind} in {where}" if distinct == 0 else f"{distinct} {kind} in {where}"


def archive_lines(name: str, index: Index, index_sha256: str, signature: Signature) -> list[str]:
    """For `suite verify` and `suite unpack`: what it is, what its packer says was scrubbed, who signed it."""
    changed = sum(run.digest_before is not None for run in index.runs)
    lines = [
        f"{name}: {len(index.files)} files as its index says (sha256 {index_sha256}), packed by suite "
        f"{index.suite_version}",
        f" {scrubbed_line(index)}",
        f" signature: {signature.line()}",
    ]
    if changed:
        lines.insert(
            2,
            f" {changed} of {len(index.runs)} bundles were other bytes before that; their digests of then, which only "
            "the packer could check, are in the index",
        )
    lines += [f" left out by the packer: {left.path}: {left.reason}" for left in index.left_out]
    return lines


def archive_facts(name: str, index: Index, index_sha256: str, signature: Signature) -> dict[str, Any]:
    """The same for programs."""
    known = index.model_dump(mode="json", by_alias=True, exclude={"files", "runs"})
    return {
        "file": name,
        "index_sha256": index_sha256,
        "files": len(index.files),
        "runs": len(index.runs),
        **known,
        "signature": signature.model_dump(mode="json"),
    }
