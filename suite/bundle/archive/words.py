"""Words that are nobody's: hosts that everybody uses, and names that are also words of the suite or of any log."""

from typing import get_args

from suite.launch.outcome import FailureKind
from suite.spec.phases import TIMED_NAMES


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Hosts, with all below them, that say nothing about who ran it.
PUBLIC_HOSTS = _words(
    "localhost localhost.localdomain github.com githubusercontent.com huggingface.co hf.co pytorch.org python.org "
    "nvidia.com nvcr.io docker.io docker.com ghcr.io quay.io kubernetes.io k8s.io deepspeed.ai arxiv.org "
    "readthedocs.io readthedocs.org googleapis.com apache.org gnu.org kernel.org stackoverflow.com openai.com "
    "microsoft.com wikipedia.org json-schema.org cyclonedx.org spdx.org ietf.org openssh.com vllm.ai ray.io "
    "pydantic.dev numpy.org scipy.org"
)
_OF_THE_SUITE = _words(
    "other setup ok failed interrupted equal start environment phase memory iteration heartbeat failure end launch "
    "local docker podman slurm kubernetes deepspeed megatron trl verl openrlhf skyrl areal trlx nemo engine trainer "
    "suite torch torchrun python cuda gpu cpu rank ranks node nodes host hosts worker workers driver server master "
    "main head train test data home root user users admin none null true false linux kernel error info warning "
    "debug rollout actor critic policy value reward generation training model batch step loss time seconds bytes "
    "run runs results work scrubbed path address container serial word secret gloo nccl mpi grpo ppo rloo bf16 fp16 "
    "fp32"
)
#: Names of accounts that images and clouds come with, and words of any sentence.
_ACCOUNTS = _words(
    "root ubuntu debian centos fedora admin administrator user users nobody runner vagrant ec2-user opc azureuser ray "
    "app jenkins ci build builder jovyan daemon www-data systemd guest docker operator git postgres mysql self name "
    "id default shared public tmp is at of the and for to in on by with from not no yes as an or be was are"
)
#: Never replaced where they merely stand as a word; where they are told as a host's or a user's name they are.
COMMON = _OF_THE_SUITE | _ACCOUNTS | {*TIMED_NAMES, *get_args(FailureKind)}
