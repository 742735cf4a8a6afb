"""Which trlx this interpreter would import; standard library alone, as the driver asks by ``python -m``."""

import importlib.util
import json
import os
import shutil
import sys
from typing import Iterator, Optional

from suite.worker.identity import package_digest
from suite.worker.manifest import installed_version
from suite.worker.rank import ConfigError

#: CarperAI/trlx, version 0.7.0: its last commit
COMMIT = "3340c2f3a56d1d14fdd5f13ad575121fa26b6d92"
VERSIONS = {"trlx": "0.7.0 ({})".format(COMMIT[:8])}
#: names a checkout of trlx for an interpreter that has none installed
SOURCE_VARIABLE = "SUITE_TRLX_SOURCE"
#: SHA-256 over the Python files of that commit's package, as ``package_digest`` makes it
DIGEST = "1bb158e9aa17161725b1347065620069254832b6ea1b9b620b6b67eb4f716258"
#: trlx's NeMo trainer imports Llama's tokenizer, which 4.28 is the first to have, and trlx's models are Llama's too;
#: 5.23 is the newest on which trlx's trainer was seen to run
_OLDEST_TRANSFORMERS, _NEWEST_TRANSFORMERS = (4, 28), (5, 23)
TESTED_TRANSFORMERS = "4.33.3"


def use_trlx() -> None:
    """Make ``import trlx`` find the measured commit. Raises ConfigError where it cannot."""
    problem = trlx_problem()
    if problem is not None:
        raise ConfigError(problem)
    source = os.environ.get(SOURCE_VARIABLE)
    if source:
        sys.path.insert(0, source)


def trlx_problem() -> Optional[str]:
    """Why trlx cannot be measured with this interpreter, with what to do; None where it can."""
    source, folder = os.environ.get(SOURCE_VARIABLE), _package_folder()
    if folder is None:
        problem = "there is no trlx {}".format("in " + source if source else "for " + sys.executable)
    elif package_digest(folder) != DIGEST:
        problem = "the trlx in {} is not commit {}, or its files were changed".format(folder, COMMIT[:8])
    else:
        return None
    advice = "install CarperAI/trlx at commit {} without its dependencies, or name a checkout, which holds it, in {}"
    return "{}; {}".format(problem, advice.format(COMMIT[:8], SOURCE_VARIABLE))


def transformers_problem() -> Optional[str]:
    """Why trlx's own code does not run on the transformers found, with what to do; None where it does."""
    version = installed_version("transformers")
    if version is None:
        return "transformers is missing; install transformers {}".format(TESTED_TRANSFORMERS)
    numbers = tuple(int(number) for number in version.split(".")[:2])
    if _OLDEST_TRANSFORMERS <= numbers <= _NEWEST_TRANSFORMERS:
        return None
    age = "new" if numbers > _NEWEST_TRANSFORMERS else "old"
    return "transformers {} is too {} for trlx's own code; install transformers {}".format(
        version, age, TESTED_TRANSFORMERS
    )


def _package_folder() -> Optional[str]:
    """The folder of the package ``trlx``: below the named checkout, else where the import system finds it."""
    source = os.environ.get(SOURCE_VARIABLE)
    if source:
        folder = os.path.join(source, "trlx")
        return folder if os.path.isfile(os.path.join(folder, "__init__.py")) else None
    spec = importlib.util.find_spec("trlx")
    if spec is None or spec.origin is None:  # a folder of that name, such as a checkout, is no package
        return None
    return os.path.dirname(spec.origin)


def shim_without_git(module: str) -> Iterator[str]:
    """For ``get_git_tag`` as ``module`` imported it: answers as trlx does itself where git fails."""
    if shutil.which("git") is None:
        importlib.import_module(module).get_git_tag = lambda: ("unknown", "unknown")
        yield (
            "shim no-git: trlx's get_git_tag asks git for the name of the current branch, and there is no git: replaced"
        )


if __name__ == "__main__":
    print(json.dumps({"trlx": trlx_problem(), "transformers": transformers_problem()}))
