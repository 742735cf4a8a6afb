"""An image without the traces of its build: one commit and the same inputs give one id.

The classic builder writes times and names of its containers into an image's configuration. One without them is loaded
over the same layers, which moves no data.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from docker import APIClient
from docker.errors import DockerException
from requests.exceptions import RequestException

#: What an image says of how it runs; the rest is about the container that the builder made it from.
_KEPT = (
    *("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels", "StopSignal", "Shell"),
    *("Healthcheck", "OnBuild"),
)


def settle(api: APIClient, identity: str, tag: str, created: int) -> str | None:
    """Load the image again, under ``tag``, with a configuration that depends on its content alone; its new id. ``None``
    where the runtime tells too little of it, or wants the layers again. ``created``: Unix seconds, of the build's time.
    """
    with suppress(DockerException, RequestException, ValueError):
        chain = [api.inspect_image(identity)]  # it, and all that it was made from
        while chain[-1].get("Parent"):
            chain.append(api.inspect_image(chain[-1]["Parent"]))
        if len(chain) < 2:
            return None
        steps = [str(entry.get("CreatedBy", "")) for entry in api.history(identity)][: len(chain) - 1]
        configuration = settled_configuration(chain, steps, created)
        data = json.dumps(configuration, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        layers = configuration["rootfs"]["diff_ids"]
        list(api.load_image(_archive(f"{digest}.json", data, tag, len(layers))))
        api.inspect_image(f"sha256:{digest}")  # not there: the answer was an error
        return f"sha256:{digest}"
    return None


def settled_configuration(chain: list[Mapping[str, Any]], steps: list[str], created: int) -> dict[str, Any]:
    """The configuration as runtimes store it. ``chain``: an image and those it was made from, down to the base;
    ``steps``: the instruction of each but the base. Newest first."""
    image, base = chain[0], chain[-1]
    moment = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    history: list[dict[str, Any]] = [{"created": moment, "created_by": "base"} for _ in _layers(base)]
    for below, above, step in zip(chain[:0:-1], chain[-2::-1], reversed(steps), strict=True):
        empty = {} if len(_layers(above)) > len(_layers(below)) else {"empty_layer": True}
        history.append({"created": moment, "created_by": step, **empty})
    names = {"architecture": "Architecture", "os": "Os", "variant": "Variant", "author": "Author"}
    return {
        **{name: image[field] for name, field in names.items() if image.get(field)},
        "created": moment,
        "config": {name: value for name in _KEPT if (value := image["Config"].get(name))},
        "rootfs": {"type": "layers", "diff_ids": _layers(image)},
        "history": history,
    }


def _layers(image: Mapping[str, Any]) -> list[str]:
    return list((image.get("RootFS") or {}).get("Layers") or ())


def _archive(name: str, configuration: bytes, tag: str, layers: int) -> bytes:
    """What ``docker load`` takes, without the layers, which the runtime has."""
    whole = tag if ":" in tag.rpartition("/")[2] else f"{tag}:latest"
    manifest = [{"Config": name, "RepoTags": [whole], "Layers": [f"{number}/layer.tar" for number in range(layers)]}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, data in ((name, configuration), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive.getvalue()
