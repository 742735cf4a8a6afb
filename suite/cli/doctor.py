"""`suite doctor` and `backends`: what this machine can run, and why not the rest; `suite schema`: forms of files."""

from pathlib import Path
from typing import Any

from suite.backends.registry import backends as known
from suite.backends.registry import read_interpreters
from suite.cli.command import Python, argument, command, option
from suite.cli.output import DONE, GATE_NOT_MET, answer, print_json
from suite.launch import probe
from suite.spec.terminal import say
from suite.spec.width import terminal_columns, wrapped


@command("print as JSON")
def doctor(
    python: Python = None,
    runs: Path = option("results folder to look at", Path("runs")),
    install: str | None = option("only print the commands that install this backend's stack", metavar="BACKEND"),
) -> int:
    """Look at interpreter, stacks, devices, memory, disk and container runtime. Exit 3 when no backend can run here."""
    from suite.conduct.doctor.examine import commands_to_install, examine, print_diagnosis

    if install is not None:
        say("\n".join(commands_to_install(install)))
        return DONE
    diagnosis = examine(read_interpreters(python or ()), runs)
    facts = {**diagnosis.model_dump(mode="json"), "able": diagnosis.able}
    answer(facts, lambda: print_diagnosis(diagnosis, terminal_columns()))
    return DONE if diagnosis.able else GATE_NOT_MET


@command("print as JSON")
def backends(python: Python = None) -> None:
    """List the backends, the interpreter and packages of each, and why one could not run with them."""
    asked = read_interpreters(python or ())
    columns, indent, rows, lines = terminal_columns(), " " * 15, list[dict[str, Any]](), list[str]()
    for name, driver in known().items():
        where = asked.of(name)
        has = probe.stack_versions(where, driver.packages)
        errors = driver.wrong_versions(has) + driver.stack_errors(where) if all(has.values()) else []
        facts = {fact: getattr(driver, fact) for fact in ("name", "kind", "summary", "settings", "experimental")}
        rows.append({**facts, "python": where, "packages": has, "errors": errors})
        warning = f" (experimental: {driver.experimental})" if driver.experimental else ""
        packages = ", ".join(f"{package} {version or 'missing'}" for package, version in has.items())
        lines += wrapped(f"{driver.summary}{warning}", columns, f"{driver.name:<14} {driver.kind:<8} ", indent)
        for text in (packages, f"in {where}", *(f"cannot run there: {error}" for error in errors)):
            lines += wrapped(text, columns, indent)
    answer(rows, lines)


@command("print the list as JSON; a schema is JSON anyway")
def schema(name: str | None = argument("manifest, record, events ...; without one, all are listed", None)) -> None:
    """Print the JSON Schema of a file that the suite writes.

    \b
    suite schema record > record.schema.json
    """
    from suite.export import schema as forms

    if name is not None:
        print_json(forms.schema(name))
        return
    found = {each: forms.schema(each) for each in forms.schema_names()}
    facts = [{"name": each, "id": body.get("$id"), "title": body.get("title")} for each, body in found.items()]
    answer(facts, [f"{each:<12} {body.get('title', '')}" for each, body in found.items()])
