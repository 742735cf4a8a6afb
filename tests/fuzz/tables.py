# ruff: noqa: E501 - inputs are as long as they are
"""Published tables: those that claims are checked on, and those that the planner is fitted on."""

import csv
import io
from collections.abc import Callable
from functools import cache
from random import Random

from suite.claims.check import check_claims
from suite.claims.table import parse_table
from suite.cli.claims import claim_lines
from suite.cli.options.reading import without_collector
from suite.planner.parameters import load_parameters
from tests.fuzz import mutate
from tests.fuzz.material import ROOT, in_file
from tools.planner.check import check_of
from tools.planner.published import read_published
from tools.planner.rl_nemo import read_recipes
from tools.planner.rl_rows import read_rl
from tools.planner.rows import Published

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
    if random.random() < 0.3:
        return mutate.lines(random.choice((CLAIMS, as_markdown(CLAIMS))), random)
    return cells_changed(CLAIMS, random, random.random() < 0.3)


def cells_changed(data: bytes, random: Random, markdown: bool = False) -> bytes:
    """A table with a few cells of other numbers, units and words."""
    rows = list(csv.reader(io.StringIO(data.decode())))
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


def heads(folder: str, lines: int) -> list[bytes]:
    """The first lines of every published table."""
    tables = sorted((ROOT / "docs/published" / folder).glob("*.csv"))
    return [b"".join(path.read_bytes().splitlines(keepends=True)[:lines]) for path in tables]


@cache
def recipes() -> list[dict[str, str]]:
    """What NeMo-RL's rows are read with."""
    return read_recipes([ROOT / "docs/published/rl/nemo_rl_recipes.csv"])


def make_table(folder: str, lines: int) -> Callable[[Random], bytes]:
    seeds = heads(folder, lines)

    def make(random: Random) -> bytes:
        seed = random.choice(seeds)
        return mutate.lines(seed, random) if random.random() < 0.3 else cells_changed(seed, random)

    return make


make_published, make_published_rl = make_table(".", 6), make_table("rl", 8)
_every = iter(range(1 << 62))


def read_rows(data: bytes) -> None:
    found = read_published([in_file("rows.csv", data)])
    if found.entries and next(_every) % 10 == 0:  # the planner takes long
        check_of(Published(tuple(found.entries), (), (), ""), load_parameters())


def read_rl_rows(data: bytes) -> None:
    rows, _ = read_rl([in_file("rl.csv", data)], recipes())
    if rows and next(_every) % 10 == 0:  # the planner takes long
        for each in check_of(Published((), tuple(rows), (), ""), load_parameters()).rows:
            assert each.predicted >= 0
