# ruff: noqa: E501 - inputs are as long as they are
"""Published tables that claims are checked on, and other tools' logs as `suite import` reads them."""

import csv
import io
from random import Random

from suite.bundle.files import DamagedBundle
from suite.bundle.imported.derive import derive
from suite.bundle.imported.record import Import, Told
from suite.bundle.imported.store import identity, log_facts
from suite.bundle.imported.timers import NAMES
from suite.claims.check import check_claims
from suite.claims.table import parse_table
from suite.cli.claims import claim_lines
from suite.cli.output import without_collector
from tests.bundle.imported.made import PRINTED, nemo_console, nemo_tracker, verl_console, verl_tracker
from tests.fuzz import mutate

CLAIMS = (
    "model,gpu,gpus,params (B),layers,hidden,ffn,seq len,global batch,heads,kv heads,vocab,tokens/s,tokens/s/gpu,tflops/gpu,mfu,"
    "hfu,step time (s),train time (h),gpu hours,tokens,peak tflops,speedup,efficiency\n"
    'llama-7B,A100-80GB,8,7,32,4096,11008,2048,128,32,32,32000,"24,000",3000,140,45,50,11.0,12,96,1B,312,1.0,100\n'
    "llama-7B,8x A100-80GB,16,7,32,4096,11008,2048,256,32,32,32000,46000,2875,134.5 ± 0.5,43%,48,11.4,7,112,1B,312,1.92,96\n"
    "moe 8x7B LoRA,H100,32,46.7,32,4096,14336,4096,512,32,8,32000,1.2e5,3750,~300,30.3,,17.5,,,,989,3.6,0.9\n"
).encode()


def as_markdown(data: bytes) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode())))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]).encode()


def make_claims(random: Random) -> bytes:
    """A table with other lines, or with a few cells of other numbers, units and words."""
    if random.random() < 0.3:
        return mutate.lines(random.choice((CLAIMS, as_markdown(CLAIMS))), random)
    markdown = random.random() < 0.3
    rows = list(csv.reader(io.StringIO(CLAIMS.decode())))
    for _ in range(random.randint(1, 6)):
        row = random.choice(rows)
        if row:
            at = random.randrange(len(row))
            near, strange = mutate.text(row[at], random), str(random.choice(mutate.VALUES))[:1000]
            row[at] = random.choice((near, strange, str(10.0 ** random.randint(-320, 308))))
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    text = out.getvalue().encode(errors="replace")
    try:
        return as_markdown(text) if markdown else text
    except csv.Error:
        return text


def read_claims(data: bytes) -> None:
    text = data.decode(errors="replace")
    table = parse_table(text, "table", markdown=text.lstrip().startswith("|"))
    with without_collector():  # as the command does
        found = check_claims(table, {}, 0.02)
    claim_lines(found, 40)


LOGS = [text.encode() for text in (verl_console(), verl_tracker(), nemo_console(), nemo_tracker(), *PRINTED.values())]
_TOLD = Told(model="m", devices=3, samples=16, prompt_tokens=100.0, response_tokens=300.0)


def read_import(data: bytes) -> None:
    """By each tool: a log may be handed in as another's."""
    errors = []
    for tool in NAMES:
        asked = Import(suite_version="0", tool=tool, warmup=1, told=_TOLD, log=log_facts(data))
        try:
            record = derive(identity(asked), asked, data)
        except DamagedBundle as error:
            errors.append(error)
        else:
            record.model_dump_json(by_alias=True)
    if len(errors) == len(NAMES):
        raise errors[0]
