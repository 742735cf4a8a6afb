"""``audit.py LOCK...``: which pinned packages have a known vulnerability, as pip-audit is told; run by `make audit`.

Exit code 0: none has. 1: one has, each is named with the versions that mend it. 3: nobody could be asked, which says
nothing of the packages.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

CLEAN, VULNERABLE, NOT_ASKED = 0, 1, 3
#: pins and hashes are the locks' own: nothing is resolved or installed
COMMAND = (
    *(sys.executable, "-m", "pip_audit", "--format=json", "--progress-spinner=off"),
    "--disable-pip",
    "--no-deps",
)
Done = subprocess.CompletedProcess


class NotAsked(Exception):
    """The service did not answer."""


def ask(lock: str) -> Done:
    return subprocess.run((*COMMAND, "--requirement", lock), capture_output=True, text=True)


def report(done: Done) -> dict[str, Any]:
    """What pip-audit found. Raises NotAsked: it ends with 1 for a finding and for a failure alike."""
    try:
        found = json.loads(done.stdout)
    except ValueError:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise NotAsked(lines[-1][:300] if lines else f"exit code {done.returncode}") from None
    if not isinstance(found, dict) or "dependencies" not in found:
        raise NotAsked("pip-audit's answer has no dependencies")
    unknown, all_of_them = skipped(found), found["dependencies"]
    if len(unknown) * 2 > len(all_of_them):  # a mirror that has packages and no advisories knows none of them
        raise NotAsked(f"the service does not know {len(unknown)} of {len(all_of_them)} packages")
    return found


def findings(found: dict[str, Any]) -> Iterator[str]:
    """A line for each vulnerability of each package."""
    for package in found["dependencies"]:
        for one in package.get("vulns", ()):
            names = ", ".join(dict.fromkeys([one["id"], *one.get("aliases", ())]))
            mended = ", ".join(one.get("fix_versions", ())) or "no version yet"
            yield f"{package['name']} {package['version']}: {names}; mended in {mended}"


def skipped(found: dict[str, Any]) -> list[str]:
    """Packages that the service does not know, such as builds of an index of their own."""
    return [package["name"] for package in found["dependencies"] if "skip_reason" in package]


def main(locks: Sequence[str], asking: Callable[[str], Done] = ask) -> int:
    code = CLEAN
    for lock in locks:
        try:
            found = report(asking(lock))
        except NotAsked as error:
            print(f"not audited: {lock}: {error}", file=sys.stderr)
            return NOT_ASKED
        lines = list(findings(found))
        unknown = skipped(found)
        print(f"{lock}: {len(found['dependencies'])} packages, {len(lines)} known vulnerabilities")
        for line in lines:
            print(f"  {line}")
        if unknown:
            print(f"  not known to the service: {', '.join(unknown)}")
        code = VULNERABLE if lines else code
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
