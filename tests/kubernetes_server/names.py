"""The names that a headless Service gives to pods, served as a cluster's DNS does: a stand-in for CoreDNS."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kubernetes.client import ApiException, CoreV1Api
from urllib3.exceptions import HTTPError

DOMAIN = "cluster.local"
PORT = 53
_A, _NO_SUCH_NAME = 1, 3
_WAKE_SECONDS = 0.5


def pod_address(core: CoreV1Api, name: str) -> str | None:
    """Address of the pod that ``HOST.SERVICE.NAMESPACE.svc.cluster.local`` names; ``None`` where it has none yet."""
    labels = name.lower().removesuffix(f".svc.{DOMAIN}").split(".")
    if len(labels) != 3:
        return None
    host, service, namespace = labels
    for pod in core.list_namespaced_pod(namespace).items:
        if pod.spec.hostname == host and pod.spec.subdomain == service and pod.status.pod_ip:
            return str(pod.status.pod_ip)
    return None


@contextmanager
def serving_names(core: CoreV1Api, address: str) -> Iterator[None]:
    """Answer at port 53 of ``address`` while the block runs."""
    stopped = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, PORT))
        server.settimeout(_WAKE_SECONDS)

        def serve() -> None:
            while not stopped.is_set():
                with suppress(TimeoutError, ValueError, IndexError, struct.error, ApiException, HTTPError):
                    question, asker = server.recvfrom(512)
                    server.sendto(_answer(core, question), asker)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


def _answer(core: CoreV1Api, question: bytes) -> bytes:
    """To a query for one name (RFC 1035, section 4): its A record, nothing for other types, or that there is no such
    name."""
    labels, place = [], 12
    while question[place]:
        length = question[place]
        labels.append(question[place + 1 : place + 1 + length].decode())
        place += 1 + length
    (kind,) = struct.unpack_from(">H", question, place + 1)
    address = pod_address(core, ".".join(labels))
    records = b""
    if address is not None and kind == _A:
        records = struct.pack(">HHHIH", 0xC00C, _A, 1, 0, 4) + socket.inet_aton(address)
    flags = 0x8580 | (_NO_SUCH_NAME if address is None else 0)
    head = struct.pack(">HHHHHH", struct.unpack_from(">H", question)[0], flags, 1, int(bool(records)), 0, 0)
    return head + question[12 : place + 5] + records
