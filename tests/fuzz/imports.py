"""Other tools' logs: what makes them, and what reads them as `suite import` does."""

from suite.bundle.imported.derive import derive
from suite.bundle.imported.record import Import, Told
from suite.bundle.imported.store import identity, log_facts
from suite.bundle.imported.timers import NAMES
from suite.spec.base import UsageError
from tests.bundle.imported.made import PRINTED, nemo_console, nemo_tracker, verl_console, verl_tracker
from tests.fuzz import mutate

_MADE = (verl_console(), verl_tracker(), nemo_console(), nemo_tracker())
_SEEDS = [text.encode() for text in (*_MADE, *PRINTED.values())]
_TOLD = Told(model="m", devices=3, samples=16, prompt_tokens=100.0, response_tokens=300.0)


make_import = mutate.line_document(*_SEEDS)


def read_import(data: bytes) -> None:
    """By each tool: a log may be handed in as another's."""
    errors = []
    for tool in NAMES:
        asked = Import(suite_version="0", tool=tool, warmup=1, told=_TOLD, log=log_facts(data))
        try:
            record = derive(identity(asked), asked, data)
        except UsageError as error:
            errors.append(error)
        else:
            record.model_dump_json(by_alias=True)
    if len(errors) == len(NAMES):
        raise errors[0]
