"""`suite backends`: the stacks that can be measured."""

from suite.backends.registry import backends as known
from suite.backends.registry import read_interpreters
from suite.cli.command import Python, command
from suite.cli.output import is_json, print_json
from suite.launch.probe import stack_versions
from suite.spec.terminal import say_lines
from suite.spec.width import terminal_columns, wrapped


@command("print as JSON")
def backends(python: Python = None) -> None:
    """List the backends, the interpreter and packages of each, and why one could not run with them."""
    asked = read_interpreters(python or ())
    rows = []
    for name, driver in known().items():
        where = asked.of(name)
        has = stack_versions(where, driver.packages)
        errors = driver.stack_errors(where) if all(has.values()) else []
        facts = {fact: getattr(driver, fact) for fact in ("name", "kind", "summary", "settings", "experimental")}
        rows.append({**facts, "python": where, "packages": has, "errors": errors})
    if is_json():
        print_json(rows)
        return
    columns, indent = terminal_columns(), " " * 15
    for row in rows:
        warning = f" (experimental: {row['experimental']})" if row["experimental"] else ""
        packages = ", ".join(f"{package} {version or 'missing'}" for package, version in row["packages"].items())
        lines = wrapped(f"{row['summary']}{warning}", columns, f"{row['name']:<14} {row['kind']:<8} ", indent)
        for text in (packages, f"in {row['python']}", *(f"cannot run there: {error}" for error in row["errors"])):
            lines += wrapped(text, columns, indent)
        say_lines(lines)
