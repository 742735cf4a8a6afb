"""What the timers and counts in other tools' step logs hold: by name, as each tool logs them.

NeMo-RL's are those by which the worker reads its step log (``suite/worker/trainers/nemo_rl/logged.py``). The driver
does not import the worker, and a test holds the two together. verl's are those of its 0.9.1 and of older versions that
log the same names; ``docs/trainers/verl.md`` says where they stand in its source. SkyRL's are those of its 0.4.0 and
AReaL's those of its 1.0.4 (``docs/import.md``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

#: Beside the phases: the timer of the whole step; timers within another; the tool's own work, which stays in ``other``;
#: ``aside``: what is no part of the work, though it lies in the step, as validations and checkpoints do.
WHOLE, WITHIN, OWN, ASIDE = "whole", "within", "own", "aside"
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
        return WITHIN if timer.startswith(self.within) else None


_VERL = Names(
    prefix="timing_s/",
    timers={
        "timing_s/step": WHOLE,
        "timing_s/gen": "generate",
        "timing_s/reward": "reward",
        "timing_s/old_log_prob": "score",
        "timing_s/values": "score",
        "timing_s/ref": "reference",
        "timing_s/adv": "reward",
        "timing_s/update_critic": "train",
        "timing_s/update_actor": "train",
        "timing_s/update_weights": "sync",
        "timing_s/generate_sequences": WITHIN,
        "timing_s/reshard": WITHIN,
        "timing_s/testing": ASIDE,
        "timing_s/save_checkpoint": ASIDE,
        "timing_s/start_profile": ASIDE,
        "timing_s/stop_profile": ASIDE,
    },
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
    timers={
        "timing/train/total_step_time": WHOLE,
        "timing/train/data_processing": OWN,
        "timing/train/prepare_for_generation/total": "sync",
        "timing/train/prepare_for_generation/transfer_and_update_weights": WITHIN,
        "timing/train/generation": "generate",
        "timing/train/reward_calculation": "reward",
        "timing/train/logprob_inference_prep": "score",
        "timing/train/policy_and_reference_logprobs": "score",
        "timing/train/advantage_calculation": "reward",
        "timing/train/training_prep": "train",
        "timing/train/policy_training": "train",
        "timing/train/checkpointing": ASIDE,
        "timing/train/valid_tokens_per_sec_per_gpu": WITHIN,  # a rate that is logged among the timers
    },
    within=("timing/train/get_logprobs/", "timing/train/policy_training/", "timing/train/prepare_for_generation/"),
    samples=("train/total_turns", "train/avg_turns_per_sample"),
    prompt_mean="train/mean_prompt_length",
    response_mean=("train/mean_gen_tokens_per_sample",),
    total_tokens="train/total_num_tokens",
)
_SKYRL = Names(
    prefix="timing/",
    timers={
        "timing/step": WHOLE,
        "timing/generate": "generate",
        "timing/postprocess_generator_output": "reward",
        "timing/convert_to_training_input": OWN,
        "timing/fwd_logprobs_values_reward": "score",
        "timing/apply_reward_kl_penalty": "reward",
        "timing/compute_advantages_and_returns": "reward",
        "timing/train_critic_and_policy": "train",
        "timing/policy_train": WITHIN,
        "timing/critic_train": WITHIN,
        "timing/update_ref_with_policy": OWN,
        "timing/sync_weights": "sync",
        "timing/sync_weights_only_transfer": WITHIN,
        "timing/save_checkpoints": ASIDE,
        "timing/cleanup_old_checkpoints": WITHIN,
        "timing/save_hf_model": ASIDE,
        "timing/eval": WITHIN,  # behind the step, and so in no sum either
    },
    response_mean=("generate/avg_num_tokens",),
)
_AREAL = Names(
    prefix="timeperf/",
    timers={
        "the time from one line `Train step N/M done` to the next": WHOLE,
        "timeperf/rollout": "generate",
        "timeperf/ref_logp": "reference",
        "timeperf/recompute_logp": "score",
        "timeperf/critic_values": "score",
        "timeperf/compute_advantage": "reward",
        "timeperf/train_step": "train",
        "timeperf/critic_train_step": "train",
        "timeperf/update_weights": "sync",
        "timeperf/clear_batches": OWN,
        **{f"timeperf/rollout_{name}": OWN for name in ("pause", "pause_generation", "continue_generation", "resume")},
        **{
            f"timeperf/{role}_{way}": OWN
            for role in ("rollout", "actor", "critic", "ref", "teacher")
            for way in ("onload", "offload")
        },
        "timeperf/save": ASIDE,
        "timeperf/checkpoint_for_recover": ASIDE,
        "timeperf/eval": ASIDE,
    },
    samples=("ppo_actor/n_seqs",),
    prompt_mean="ppo_actor/prompt_len/avg",
    response_mean=("ppo_actor/seq_len/avg", "ppo_actor/prompt_len/avg"),
)
NAMES: Final[Mapping[str, Names]] = {"verl": _VERL, "nemo-rl": _NEMO_RL, "skyrl": _SKYRL, "areal": _AREAL}
