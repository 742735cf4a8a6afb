"""What the timers and counts in other tools' step logs hold: by name, as each tool logs them.

NeMo-RL's are those by which the worker reads its step log (``suite/worker/trainers/nemo_rl/logged.py``). The driver
does not import the worker, and a test holds the two together. verl's are those of its 0.9.1 and of older versions that
log the same names; ``docs/trainers/verl.md`` says where they stand in its source. SkyRL's are those of its 0.4.0 and
AReaL's those of its 1.0.4 (``docs/import.md``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

#: Beside the phases: the timer of the whole step; those in no sum, which lie within another or are the tool's own work,
#: which stays in ``other``; ``aside``: what is no part of the work, though it lies in the step, as validations do.
WHOLE, UNCOUNTED, ASIDE = "whole", "uncounted", "aside"
Tool = Literal["verl", "nemo-rl", "skyrl", "areal"]


@dataclass(frozen=True)
class Names:
    """How one tool calls what is read of its log.

    ``prefix``: of everything that is a timer. ``timers``: name -> phase, or a word of above. ``within``:
    prefixes of timers that lie within another. ``samples``: a number of samples, or two whose quotient it is;
    ``response_mean``: a mean length, or two whose difference it is. ``memory``: what names of peaks in GiB end in ->
    the field of the record. What a tool does not log is empty.
    """

    prefix: str
    timers: Mapping[str, str]
    samples: tuple[str, ...] = ()
    prompt_mean: str = ""
    response_mean: tuple[str, ...] = ()
    total_tokens: str = ""
    within: tuple[str, ...] = ()
    memory: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> str:
        return next(name for name, phase in self.timers.items() if phase == WHOLE)

    def asks_for(self, name: str) -> bool:
        """Whether anything is made of the number of this name."""
        asked = (self.whole, self.prompt_mean, self.total_tokens, *self.samples, *self.response_mean)
        return name.startswith(self.prefix) or name in asked or self.peak_of(name) is not None

    def peak_of(self, name: str) -> str | None:
        """Of a peak of memory, which the record has; of several models the largest counts."""
        return next((peak for end, peak in self.memory.items() if name == end or name.endswith(f"/{end}")), None)

    def phase_of(self, timer: str) -> str | None:
        """Null: a timer of whose meaning nothing is known here."""
        if timer in self.timers:
            return self.timers[timer]
        return UNCOUNTED if timer.startswith(self.within) else None


def _timers(prefix: str, **words: str) -> dict[str, str]:
    """By phase, or a word of above, the timers of it, without their prefix."""
    return {f"{prefix}{name}": phase for phase, names in words.items() for name in names.split()}


_VERL = Names(
    prefix="timing_s/",
    timers=_timers(
        "timing_s/",
        whole="step",
        sync="update_weights",
        generate="gen",
        score="old_log_prob values",
        reference="ref",
        reward="reward adv",
        train="update_critic update_actor",
        uncounted="generate_sequences reshard",
        aside="testing save_checkpoint start_profile stop_profile",
    ),
    within=("timing_s/agent_loop/", "timing_s/generation_timing/"),
    prompt_mean="prompt_length/mean",
    response_mean=("response_length/mean",),
    total_tokens="perf/total_num_tokens",
    memory={
        "perf/max_memory_allocated_gb": "peak_allocated_bytes",
        "perf/max_memory_reserved_gb": "peak_reserved_bytes",
    },
)
_NEMO_RL = Names(
    prefix="timing/train/",
    timers=_timers(
        "timing/train/",
        whole="total_step_time",
        sync="prepare_for_generation/total",
        generate="generation",
        score="logprob_inference_prep policy_and_reference_logprobs",
        reward="reward_calculation advantage_calculation",
        train="training_prep policy_training",
        # the last is a rate that is logged among the timers
        uncounted="data_processing prepare_for_generation/transfer_and_update_weights valid_tokens_per_sec_per_gpu",
        aside="checkpointing",
    ),
    within=("timing/train/get_logprobs/", "timing/train/policy_training/", "timing/train/prepare_for_generation/"),
    samples=("train/total_turns", "train/avg_turns_per_sample"),
    prompt_mean="train/mean_prompt_length",
    response_mean=("train/mean_gen_tokens_per_sample",),
    total_tokens="train/total_num_tokens",
)
_SKYRL = Names(
    prefix="timing/",
    timers=_timers(
        "timing/",
        whole="step",
        sync="sync_weights",
        generate="generate",
        score="fwd_logprobs_values_reward",
        reward="postprocess_generator_output apply_reward_kl_penalty compute_advantages_and_returns",
        train="train_critic_and_policy",
        # an evaluation comes after the step
        uncounted="convert_to_training_input update_ref_with_policy policy_train critic_train"
        " sync_weights_only_transfer cleanup_old_checkpoints eval",
        aside="save_checkpoints save_hf_model",
    ),
    response_mean=("generate/avg_num_tokens",),
)
_MOVES = " ".join(f"{role}_onload {role}_offload" for role in ("rollout", "actor", "critic", "ref", "teacher"))
_AREAL = Names(
    prefix="timeperf/",
    timers={
        "the time from one line `Train step N/M done` to the next": WHOLE,
        **_timers(
            "timeperf/",
            sync="update_weights",
            generate="rollout",
            score="recompute_logp critic_values",
            reference="ref_logp",
            reward="compute_advantage",
            train="train_step critic_train_step",
            uncounted="clear_batches rollout_pause rollout_pause_generation rollout_continue_generation rollout_resume"
            f" {_MOVES}",
            aside="save checkpoint_for_recover eval",
        ),
    },
    samples=("ppo_actor/n_seqs",),
    prompt_mean="ppo_actor/prompt_len/avg",
    response_mean=("ppo_actor/seq_len/avg", "ppo_actor/prompt_len/avg"),
)
NAMES: Final[Mapping[str, Names]] = {"verl": _VERL, "nemo-rl": _NEMO_RL, "skyrl": _SKYRL, "areal": _AREAL}
