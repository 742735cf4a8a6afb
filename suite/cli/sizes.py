"""`suite sizes`: the shapes on the ladders, with their exact parameter counts."""

from typing import Any

from suite.cli.command import command, option
from suite.cli.output import is_json, print_json
from suite.cli.saved_help import content_width
from suite.spec.catalogue import find_ladder, find_size, ladders, presets
from suite.spec.shape import Shape
from suite.spec.terminal import say, say_lines
from suite.spec.width import terminal_columns, unbroken, wrapped
from suite.theory.parameters import parameter_count


@command("print as JSON")
def sizes(ladder: str | None = option("only this ladder")) -> None:
    """List the model sizes by ladder; parameters are computed from the shape, never read off the name.

    Below them the presets of `suite run`, each a measurement of several sizes.
    """
    listed = {ladder: find_ladder(ladder)} if ladder else ladders()
    rows = {name: [_row(find_size(size)) for size in members] for name, members in listed.items()}
    if is_json():
        print_json(rows)
        return
    terminal = terminal_columns()
    columns = None if terminal is None else min(terminal, content_width())
    for name, shapes in rows.items():
        say(f"ladder {name}")
        titles = f"{'layers':>6} {'hidden':>6} {'ffn':>6} {'heads':>5} {'kv':>3} {'vocab':>6}"
        say(f"  {'size':<15} {'parameters':>14} {titles}")
        for shape in shapes:
            line = (
                f"  {shape['name']:<15} {shape['parameters']:>14,} {shape['layers']:>6} {shape['hidden']:>6} "
                f"{shape['ffn']:>6} {shape['heads']:>5} {shape['kv_heads']:>3} {shape['vocab']:>6}"
            )
            notes = [shape["note"]]
            if (experts := shape.get("experts")) is not None:
                chosen = f"{experts['per_token']} of {experts['count']} experts"
                notes.insert(0, f"{shape['active_parameters']:,} active: {chosen}")
            note = "; ".join(filter(None, notes))
            is_below = columns is not None and note
            say_lines([line, *wrapped(note, columns, "    ")] if is_below else [f"{line}  {note}".rstrip()])
    for preset in () if ladder else presets().values():
        points = [f"{point.size} on {point.ranks}" for point in preset.points]
        say_lines(wrapped(preset.summary, columns, f"preset {preset.name}: ", "  "))
        say_lines(wrapped(unbroken(points) + " ranks", columns, "  "))


def _row(size: Shape) -> dict[str, Any]:
    """A shape's fields with its parameters, and with experts those that one token meets."""
    count = parameter_count(size)
    active = {} if size.experts is None else {"active_parameters": count.active}
    return {**size.model_dump(mode="json"), "parameters": count.total, **active}
