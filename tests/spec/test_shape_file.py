"""A shape's vocabulary is padded; a user's shape file is read, or refused in one line with the file and the reason."""

import os

import pytest
import yaml

from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, sizes
from suite.spec.shape_file import MAX_BYTES, load_shape

GOOD = {"name": "mine", "layers": 2, "hidden": 32, "ffn": 128, "heads": 4, "kv_heads": 4, "vocab": 100, "positions": 64}

BILLIONS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{'*a%d,' % (i - 1) * 9}]\n" for i in range(1, 20))


def written(folder, text, name="shape.yaml"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path):
    """The message of the refusal; it must be one line and start with the file."""
    with pytest.raises(UsageError) as caught:
        load_shape(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


@pytest.mark.parametrize("name", sorted(sizes()))
def test_every_catalogue_size_survives_the_way_through_a_file(tmp_path, name):
    size = find_size(name)
    assert load_shape(written(tmp_path, yaml.safe_dump(size.model_dump()))) == size
    assert load_shape(str(written(tmp_path, size.model_dump_json(), "own.json"))) == size


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        *(("shape.yaml", text, "holds fields with values") for text in ("", "- 1\n- 2\n", "just words")),
        ("shape.yaml", "a: [1, 2", "not valid YAML"),
        ("shape.yaml", "{}", "name is missing"),
        ("shape.yaml", "? [1, 2]\n: 3\n", "not valid YAML"),
        ("shape.yaml", "name: a\nname: b\n", "'name' is given twice"),
        ("shape.yaml", BILLIONS, "aliases"),
        ("shape.yaml", "!!python/object/apply:os.system ['true']", "tags"),
        ("shape.yaml", "layers: !!bool two", "tags"),
        ("shape.yaml", "layers: " + "9" * 5000, "cannot be read"),
        ("shape.yaml", "when: 2001-99-99", "cannot be read"),
        ("shape.yaml", "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("shape.yaml", "a: \x00", "not valid YAML"),
        ("config.json", "", "not valid JSON"),
        ("config.json", '{"layers": NaN}', "layers is nan"),
        ("config.json", "null", "holds fields with values"),
        ("config.json", "[" * 100_000, "nested too deeply"),
        ("config.json", '{"layers": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path, name, text, reason):
    message = refused(written(tmp_path, text, name))
    assert reason in message and str(tmp_path) in message


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layer": 2}, "layer is not a field of a shape"),
        ({"layers": "2"}, "layers is '2'"),
        ({"layers": True}, "layers is True"),
        ({"layers": float("nan")}, "layers is nan"),
        ({"layers": 0}, "greater than 0"),
        ({"layers": 10**12}, "layers is larger than"),
        ({"heads": 3, "kv_heads": 3}, "not divisible by 3 heads"),
        ({"kv_heads": 3}, "not divisible by 3 key-value heads"),
        ({"architecture": "bert"}, "architecture is 'bert'"),
        ({"name": ""}, "name is ''"),
        ({"name": "x" * 65}, "name is "),
        ({"name": "\x1b[31mred"}, "cannot be shown"),
    ],
)
def test_a_wrong_value_is_named(tmp_path, changes, reason):
    assert reason in refused(written(tmp_path, yaml.safe_dump({**GOOD, **changes})))


def test_a_missing_field_what_is_no_text_a_large_file_and_a_thing_said_twice_are_refused(tmp_path):
    without = yaml.safe_dump({name: value for name, value in GOOD.items() if name != "heads"})
    assert "heads is missing" in refused(written(tmp_path, without))
    assert "is not UTF-8 text" in refused(written(tmp_path, b"\x89PNG\r\n\xff\xfe"))
    assert f"more than the {MAX_BYTES} that are read" in refused(written(tmp_path, b"#" * (MAX_BYTES + 1)))
    assert "'a' is given twice" in refused(written(tmp_path, '{"a": 1, "b": {"c": 2}, "a": 3}', "config.json"))


def test_what_is_no_file_is_refused(tmp_path):
    assert "there is no file" in refused(tmp_path / "absent.yaml")
    assert "is not a regular file" in refused(tmp_path)
    assert "null" in refused("a\0b")
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "not a regular file" in refused(tmp_path / "pipe.yaml")
    assert "not a regular file" in refused("/dev/zero")
