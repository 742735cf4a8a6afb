"""Signatures of archives by SSH keys: of the index, which has the digest of every file (``ssh-keygen -Y``)."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

from suite.spec.base import Frozen, UsageError
from suite.spec.foreign import read_bytes

#: What a signature is for: one made for mail or for a commit does not fit.
NAMESPACE = "suite-archive"
#: A key may ask for a word.
_SECONDS = 600.0
_KEY = re.compile(r"with ([A-Z0-9-]{2,30}) key (SHA256:[A-Za-z0-9+/]{43})")

Outcome = Literal["signed", "signer not known", "signer not checked", "not signed", "bad signature"]


class Signature(Frozen):
    """What a check came to. ``signer``: the principal of the allowed signers; ``key``: kind and fingerprint."""

    outcome: Outcome
    signer: str | None = None
    key: str | None = None

    def line(self) -> str:
        known = {
            "signed": f"signed by {self.signer} ({self.key})",
            "signer not known": f"signed, but by none of the allowed signers ({self.key})",
            "signer not checked": f"signed by {self.key}; whose key that is, --allowed-signers FILE says"
            if self.key
            else "signed, which was not checked: ssh-keygen is not here",
            "bad signature": "BAD SIGNATURE: it is not of this content",
        }
        return known.get(self.outcome, self.outcome)


def sign(data: bytes, key: Path) -> bytes:
    """By a private key, or by a public one whose private half an agent has. Raises UsageError."""
    with tempfile.TemporaryDirectory(prefix="suite-signature-") as place:
        content = Path(place, "index")  # not by standard input, so that a key can ask for its word on the terminal
        content.write_bytes(data)
        done = _done(["ssh-keygen", "-q", "-Y", "sign", "-f", os.path.abspath(key), "-n", NAMESPACE, str(content)])
        if done.returncode != 0:
            why = " ".join(done.stderr.decode(errors="replace").split())[:200]
            raise UsageError(f"ssh-keygen cannot sign with {key}: {why}")
        return read_bytes(content.with_name("index.sig"), "index.sig")


def check(data: bytes, signature: bytes | None, allowed: Path | None = None) -> Signature:
    """Whether a signature is of ``data``, and whose, by a file of allowed signers. Raises UsageError where that or
    ssh-keygen is not there."""
    if allowed is not None and not allowed.is_file():
        raise UsageError(f"{allowed} is no file of allowed signers (a line each: NAME ssh-ed25519 KEY)")
    if signature is None:
        return Signature(outcome="not signed")
    with tempfile.TemporaryDirectory(prefix="suite-signature-") as place:
        file = Path(place, "index.sig")
        file.write_bytes(signature)
        about = ["-n", NAMESPACE, "-s", str(file)]
        if allowed is None and shutil.which("ssh-keygen") is None:
            return Signature(outcome="signer not checked")
        done = _done(["ssh-keygen", "-Y", "check-novalidate", *about], data)
        found = _KEY.search(done.stdout.decode(errors="replace"))
        if done.returncode != 0 or found is None:
            return Signature(outcome="bad signature")
        key = f"{found.group(1)} {found.group(2)}"
        if allowed is None:
            return Signature(outcome="signer not checked", key=key)
        signers = os.path.abspath(allowed)
        done = _done(["ssh-keygen", "-Y", "find-principals", "-f", signers, "-s", str(file)], b"")
        for signer in done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else ():
            checked = _done(["ssh-keygen", "-Y", "verify", "-f", signers, "-I", signer, *about], data)
            if checked.returncode == 0:
                return Signature(outcome="signed", signer=signer, key=key)
        return Signature(outcome="signer not known", key=key)


def _done(command: list[str], data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Raises UsageError where it cannot be run or does not end."""
    plain = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(command, capture_output=True, timeout=_SECONDS, env=plain, input=data)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"signatures need ssh-keygen, of OpenSSH's client: {error}") from error
