"""Who ran it, and where: found in any text of a bundle, and replaced by names that only tell one from another.

What is the same stays the same: a host is ``scrubbed-host-1`` wherever it stood, so that runs of one machine can still
be told from those of two. Names of hosts and users are gathered first, from where they are told as such, and then
replaced wherever they stand as words. Replacing is safe where it is wrong: a version of four numbers may be taken for
an address.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import get_args

from suite.bundle.archive.index import Scrubbed
from suite.launch.outcome import FailureKind
from suite.spec.phases import TIMED_NAMES
from suite.spec.redaction import LEFT_OUT, without_secrets

HOST, USER, PATH, ADDRESS, CONTAINER, SERIAL = "host", "user", "path", "address", "container", "serial"
SECRET, WORD = "secret", "word"
#: What stands in the place of what was scrubbed; read again it is left as it is.
_ANY = re.compile(r"scrubbed-[a-z]{4,9}-[0-9]{1,9}")
#: Texts that were looked at, kept while they are short: most facts and events say the same again and again.
_MOST_KEPT, _LONGEST_KEPT = 1 << 16, 200
#: Pieces of a long text that are looked at each for itself, ended where no name goes on, and longer single words.
_LONGEST_PART = 1 << 15
_PART = re.compile(rf'.{{1,{_LONGEST_PART}}}(?=[ ",;\n\t]|\Z)|.[^ ",;\n\t]*', re.DOTALL)

_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,20}://)([^\s/?#\"'<>|\\,;)\]}]{1,300})([^\s\"'<>|,;)\]}]{0,2000})")
_MAIL = re.compile(r"(?<![\w.+@-])[\w.+-]{1,64}+@(?!sha256:)[A-Za-z][\w.-]{0,252}+")
_UUID = re.compile(
    r"(?<![0-9A-Za-z])(?:GPU-|MIG-GPU-|MIG-)?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"(?![0-9A-Za-z])"
)
_SERIAL = re.compile(
    r"(?i)(\b(?:serial|asset|service)[ _-]?(?:number|num|no|tag|id)?\.?[\"']?\s{0,3}[:=#]\s{0,3}[\"']?)"
    r"([A-Z0-9][A-Z0-9._-]{3,63})"
)
_MACHINE_ID = re.compile(r"(?i)(\b(?:machine|boot|host)[ _-]?id[\"']?\s{0,3}[:=]?\s{0,3}[\"']?)([0-9a-f]{32})\b")
_CONTAINER = re.compile(
    r"(?i)(\b(?:docker|containerd|crio|libpod|containers?|cid|pod|sandbox)(?:[ _-]?id)?[\"']?[ :=/_-]{1,4}[\"']?)"
    r"([0-9a-f]{64}|[0-9a-f]{12})(?![0-9A-Za-z])"
)
_MAC = re.compile(
    r"(?<![0-9A-Za-z:-])[0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){5,19}|(?:-[0-9A-Fa-f]{2}){5})(?![0-9A-Za-z:])"
)
_GUID = re.compile(r"(?<![0-9A-Za-z:])(?:[0-9A-Fa-f]{4}:){3}[0-9A-Fa-f]{4}(?![0-9A-Za-z:])|\b0x[0-9a-fA-F]{16}\b")
_INTERFACE = re.compile(r"\benx[0-9a-f]{12}\b")
_IPV6 = re.compile(
    r"(?<![0-9A-Za-z:.])(?=[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{2,39}+(?:[0-9.]{7,15})?(?:%\w{1,15})?(?![0-9A-Za-z:])"
)
_IPV4 = re.compile(r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\.?[\w])")
_CLOUD_HOST = re.compile(r"\bip-(?:[0-9]{1,3}-){3}[0-9]{1,3}\b(?:\.[\w.-]{1,200}+)?")
_HOST_IS = re.compile(
    r"(?i)\b(?:host_?name|host|node_?name|node_?list|master_addr|server_?name|fqdn)[\"']?"
    r"(?:\s{0,3}[:=]\s{0,3}|\s(?:is|name)\s)[\"']?([A-Za-z0-9][\w.-]{0,252})"
)
_NCCL_HOST = re.compile(r"(?m)^(?:\[[^\]\n]{0,80}\][: ]{0,2})?([A-Za-z0-9][\w.-]{0,252}):[0-9]{1,8}:[0-9]{1,8} \[")
_HOST_PORT = re.compile(r"(?<![\w.:/@-])([A-Za-z][\w.-]{1,252}+):[0-9]{4,5}(?![\w:.])")
_SOURCE = re.compile(r"(?i)\.(?:py|pyx|c|cc|cpp|cxx|cu|cuh|h|hpp|rs|go|js|ts|so|txt|json|yaml|yml|log|md|cfg)$")
_FQDN = re.compile(
    r"(?<![\w.@/-])(?:(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,8}"
    r"(?:com|org|net|edu|gov|mil|int|local|localdomain|lan|internal|intranet|corp|intra|cluster|cloud|svc|hpc)"
    r"|(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){2,8}"
    r"(?:uk|de|fr|ch|nl|cn|jp|kr|eu|us|ca|au|se|fi|dk|pl|at|be|ru|br|sg|tw|es|it))(?![\w-])(?!\.\w)"
)
_HOME = re.compile(r"(?:^|[/\s=:\"'(])(?:home|Users|users|u)/([A-Za-z_][\w.-]{0,63})|~([A-Za-z_][\w.-]{0,63})/")
_USER_IS = re.compile(
    r"(?i)\b(?:(?:SUDO_|SLURM_JOB_)?USER=|(?:LOGNAME|user_?name|owner|login)[\"']?\s{0,3}[:=]\s{0,3})[\"']?([A-Za-z_][\w.-]{0,63})"
    r"|\buid=[0-9]{1,10}\(([^)\s]{1,64})\)"
)
_FILE = re.compile(
    r"(?:(?<![\w/.)\]}>-])|(?<=\.\.)|(?<=\bfile://))/[\w.@+~,{}$%=-]++"
    r"(?:(?: [\w.@+~,{}$%=-]{1,40}){0,3}/[\w.@+~,{}$%=-]++)*+/?"
    r"|(?<![\w/~.-])~\w{0,63}(?:/[\w.@+~,{}$%=-]++)++"
)
#: Folders that are alike on any machine, and folders of packages, from which on a path says what every other says.
_SYSTEM = re.compile(
    r"/(?:usr/(?:lib|lib64|bin|sbin|include|share|local/(?:lib|bin|cuda[\w.-]*))|bin|sbin|lib|lib64|proc|sys"
    r"|dev/(?:shm|null|zero|nvidia[\w-]*|infiniband|kfd|dri|stdout|stderr|pts|tty))(?:/|$)"
)
_PACKAGES = ("/site-packages/", "/dist-packages/")
_WORD = re.compile(r"[A-Za-z0-9]+")
#: Where names are declared: in the last group of a pattern.
_TOLD = {USER: (_HOME, _USER_IS), HOST: (_HOST_IS, _NCCL_HOST, _HOST_PORT), CONTAINER: (_CONTAINER,)}
#: What is replaced one after the other: whole, or behind what a first group keeps.
_REPLACED = {
    USER: (_MAIL,),
    SERIAL: (_UUID, _SERIAL, _MACHINE_ID),
    HOST: (_CLOUD_HOST,),
    CONTAINER: (_CONTAINER,),
    ADDRESS: (_IPV4, _MAC, _GUID, _IPV6, _INTERFACE),
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Hosts, with all below them, that say nothing about who ran it.
_PUBLIC_HOSTS = _words(
    "localhost localhost.localdomain github.com githubusercontent.com huggingface.co hf.co pytorch.org python.org "
    "nvidia.com nvcr.io docker.io docker.com ghcr.io quay.io kubernetes.io k8s.io deepspeed.ai arxiv.org "
    "readthedocs.io readthedocs.org googleapis.com apache.org gnu.org kernel.org stackoverflow.com openai.com "
    "microsoft.com wikipedia.org json-schema.org cyclonedx.org spdx.org ietf.org openssh.com vllm.ai ray.io "
    "pydantic.dev numpy.org scipy.org 127.0.0.1 0.0.0.0 ::1 ::"
)
#: Words of the suite and of any log, and accounts that images and clouds come with. They are never replaced where they
#: merely stand as a word; where they are told as a host's or a user's name they are.
_COMMON = _words(
    "other setup ok failed interrupted equal start environment phase memory iteration heartbeat failure end launch "
    "local docker podman slurm kubernetes deepspeed megatron trl verl openrlhf skyrl areal trlx nemo engine trainer "
    "suite torch torchrun python cuda gpu cpu rank ranks node nodes host hosts worker workers driver server master "
    "main head train test data home root user users admin none null true false linux kernel error info warning "
    "debug rollout actor critic policy value reward generation training model batch step loss time seconds bytes "
    "run runs results work scrubbed path address container serial word secret gloo nccl mpi grpo ppo rloo bf16 fp16 "
    "fp32 ubuntu debian centos fedora administrator nobody runner vagrant ec2-user opc azureuser ray app jenkins ci "
    "build builder jovyan daemon www-data systemd guest operator git postgres mysql self name id default shared "
    "public tmp is at of the and for to in on by with from not no yes as an or be was are"
).union(TIMED_NAMES, get_args(FailureKind))


class Identities:
    """Names for what is scrubbed, the same through all texts. ``keep``: what may stay; ``also``: words to scrub."""

    def __init__(self, keep: Iterable[str] = (), also: Iterable[str] = ()) -> None:
        self._keep = {word.casefold() for word in keep}
        self._names: dict[str, str] = {}  # as found, without case -> kind
        self._by_word: dict[str, list[str]] = {}
        self._numbers: dict[tuple[str, str], str] = {}
        self._places: Counter[str] = Counter()
        self._last: Counter[str] = Counter()
        self._kept: dict[tuple[str, bool], tuple[str, Counter[str]]] = {}
        self._learnt: set[str] = set()
        self._as_it_is: set[str] = set()
        for word in also:
            self._add_name(word, WORD, common_too=True)

    def counts(self) -> dict[str, Scrubbed]:
        distinct = Counter(kind for kind, _ in self._numbers)
        return {
            f"{kind}s" if kind != ADDRESS else "addresses": Scrubbed(distinct=distinct[kind], places=places)
            for kind, places in sorted(self._places.items())
        }

    def leave(self, run_id: str) -> None:
        """A text that stays as it is wherever it is all there is: an id of a run, in which ``n1`` is no host."""
        self._as_it_is.add(run_id)

    # -- names that are told as such

    def learn_as(self, kind: str, name: str) -> None:
        """A text that is a name of this kind. Of a host's the part before the first dot is one too; so are the first
        twelve digits of a container's id, which are its short one and its host's name."""
        if kind == HOST:
            name = name.strip(".[]")
            if _is_address(name) or _is_public(name):
                return
        self._add_name(name, kind)
        if kind == HOST:
            self._add_name(name.partition(".")[0], HOST)
        elif kind == CONTAINER and re.fullmatch("[0-9a-f]{13,64}", name):
            self._add_name(name[:12], CONTAINER)

    def learn(self, text: str) -> None:
        """Names that a text tells as those of hosts, users and containers, and those that it had scrubbed before."""
        if text in self._learnt:
            return
        if len(text) <= _LONGEST_KEPT and len(self._learnt) < _MOST_KEPT:
            self._learnt.add(text)
        for name in _ANY.findall(text):
            _, kind, number = name.split("-")
            self._last[kind] = max(self._last[kind], int(number))
        for kind, name in _told(text):
            self.learn_as(kind, name)
        for name in (*_FQDN.findall(text), *_CLOUD_HOST.findall(text)):
            if not _is_public(name):
                self._add_name(name, HOST)
                if re.search("[0-9-]", name.partition(".")[0]):
                    self._add_name(name.partition(".")[0], HOST)

    def _add_name(self, name: str, kind: str, common_too: bool = False) -> None:
        folded = name.casefold()
        if len(folded) < 2 or folded.isdecimal() or folded in self._keep or _ANY.fullmatch(folded):
            return
        first = _WORD.match(folded)
        if first is None or (folded in _COMMON and not common_too) or folded in self._names:
            return
        self._names[folded] = kind
        self._by_word.setdefault(first.group(), []).append(folded)
        self._by_word[first.group()].sort(key=len, reverse=True)
        self._kept.clear()

    # -- replacing

    def named(self, kind: str, found: str) -> str:
        """What stands for it from now on."""
        key = (kind, found.casefold())
        if key not in self._numbers:
            self._last[kind] += 1
            self._numbers[key] = f"scrubbed-{kind}-{self._last[kind]}"
        self._places[kind] += 1
        return self._numbers[key]

    def whole(self, kind: str, text: str) -> str:
        """A text that is nothing but a name of the kind."""
        if not text.strip() or self._may_stay(text) or _ANY.fullmatch(text):
            return text
        return self.named(kind, text)

    def scrub(self, text: str, versions: bool = False) -> str:
        """A text without identity. ``versions``: where four numbers with dots are no address."""
        if text in self._as_it_is:
            return text
        if len(text) > _LONGEST_KEPT:
            return "".join(self._scrubbed(part, versions) for part in _PART.findall(text))
        known = self._kept.get((text, versions))
        if known is None:
            before = Counter(self._places)
            after = self._scrubbed(text, versions)
            known = after, self._places - before
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[text, versions] = known
        elif known[1]:
            self._places.update(known[1])
        return known[0]

    def _scrubbed(self, text: str, versions: bool) -> str:
        if len(text) > _LONGEST_PART:
            return LEFT_OUT  # one long word, of which nobody can say what it holds
        clean = without_secrets(text)
        if clean != text:
            self._places[SECRET] += max(clean.count(LEFT_OUT) - text.count(LEFT_OUT), 1)
        text = _URL.sub(self._url, clean)
        for kind, patterns in _REPLACED.items():
            for pattern in patterns:
                if not (versions and pattern is _IPV4):
                    text = pattern.sub(partial(self._found, kind), text)
        return self._without_names(_FILE.sub(self._path, text))

    def _without_names(self, text: str) -> str:
        """Names that were learnt, where they stand as words: ``_`` and ``-`` end one."""
        pieces, end = [], 0
        folded = text.casefold() if text.isascii() else text.lower()
        if len(folded) != len(text):
            folded = text
        for match in _WORD.finditer(folded):
            if match.start() < end:
                continue
            for name in self._by_word.get(match.group(), ()):
                stop = match.start() + len(name)
                if folded.startswith(name, match.start()) and not folded[stop : stop + 1].isalnum():
                    pieces += [text[end : match.start()], self.named(self._names[name], name)]
                    end = stop
                    break
        return "".join([*pieces, text[end:]]) if pieces else text

    def _may_stay(self, found: str) -> bool:
        folded = found.casefold()
        return folded in self._keep or any(folded.startswith(f"{word.rstrip('/')}/") for word in self._keep)

    def _found(self, kind: str, match: re.Match[str]) -> str:
        kept, found = match.groups() or ("", match.group())
        if self._may_stay(found) or _ANY.match(found) or found.casefold() in _COMMON:
            return match.group()
        if match.re in (_IPV4, _IPV6) and not (_is_address(found) and any(char.isdigit() for char in found)):
            return found  # two names in C++ may look like an address
        return kept + self.named(kind, found)

    def _url(self, match: re.Match[str]) -> str:
        scheme, place, rest = match.groups()
        who = _host_of(place)
        if _is_public(who) or self._may_stay(match.group()):
            return match.group()
        kind = ADDRESS if _is_address(who) else HOST
        end = rest if rest in ("", "/") else "/" + self.named(PATH, rest)
        return scheme + place.replace(who, self.named(kind, who)) + end

    def _path(self, match: re.Match[str]) -> str:
        found = match.group()
        if _SYSTEM.match(found) or self._may_stay(found) or _ANY.fullmatch(found[1:]):
            return found
        if (found.count("/") == 1 and len(found) < 6) or not re.search("[A-Za-z0-9]", found):
            return found  # a division or a unit, rather than a folder: /s, /step
        for folder in _PACKAGES:
            place = found.rfind(folder)
            if place >= 0:
                return self.named(PATH, found[:place]) + found[place:]
        end = len(found.rstrip("/.,"))
        return self.named(PATH, found[:end]) + found[end:]


def _told(text: str) -> Iterator[tuple[str, str]]:
    """Names that a text declares, each with its kind."""
    for found in _MAIL.findall(text):
        user, _, host = found.partition("@")
        yield from ((USER, user), (HOST, host))
    yield from ((HOST, _host_of(place)) for _, place, _ in _URL.findall(text))
    for kind, patterns in _TOLD.items():
        for match in (match for pattern in patterns for match in pattern.finditer(text)):
            name = match[match.lastindex or 0]
            # before a port; a name there may also be a file's before a line's number, or a word's
            if match.re is not _HOST_PORT or (re.search("[0-9-]", name) and not _SOURCE.search(name)):
                yield kind, name


def _host_of(place: str) -> str:
    """Of the part of a URL before its path: without user and port."""
    return re.sub(":[0-9]*$", "", place.rpartition("@")[2]).strip("[]")


def _is_public(host: str) -> bool:
    """Whether a name tells nobody anything: this host, or one that everybody uses."""
    host = host.casefold().rstrip(".")
    if host in _COMMON or "{" in host or "$" in host or _ANY.match(host):
        return True
    return any(f".{host}".endswith(f".{public}") for public in _PUBLIC_HOSTS)


def _is_address(text: str) -> bool:
    """Whether it is an address, and not one that every machine has."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)
