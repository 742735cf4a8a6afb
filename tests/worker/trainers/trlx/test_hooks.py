"""The hooks on a stand-in with the method names and the order of trlx's PPO trainer; nothing of trlx is imported."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from suite.worker.rank import ConfigError
from suite.worker.trainers.iteration import IterationState, Tally
from suite.worker.trainers.trlx.accelerate.hooks import TimedPPO
from tests.worker.tiny import tiny_body
from tests.worker.trainers.journal import Journal
from tests.worker.trainers.runs import ALONE

pytestmark = pytest.mark.usefixtures("group_of_one")
PROMPT, NEW, SAMPLES, MICRO = 8, 8, 4, 2
PAD = 99


class Tokenizer:
    pad_token_id = PAD

    def __call__(self, texts: list[str]) -> Any:
        return SimpleNamespace(input_ids=[[int(word) for word in text.split()] for text in texts])


class Policy(nn.Module):
    """Answers logits of zeros; a method of its own for the branch, as a hydra policy has."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*tokens.shape, 10)

    def forward_hydra(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.forward(tokens)


class Wrapper(nn.Module):
    """Around the policy, as DeepSpeed's engine: what it does not have itself is the policy's."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.module = policy

    @property
    def forward_hydra(self) -> Any:
        return self.module.forward_hydra

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.module(tokens)


class SteppingWrapper(Wrapper):
    """An engine that steps by itself, and knows the norm of its gradient."""

    def get_global_grad_norm(self) -> torch.Tensor:
        return torch.tensor(2.0)

    def step(self) -> None:
        pass


def logprobs_of_labels(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


class StandIn:
    """An iteration as trlx has it: experience is made, then micro batches are trained on."""

    def __init__(
        self,
        config: Any,
        reward_fn: Any,
        *,
        is_main: bool = True,
        full_reference: bool = False,
        extra_token: bool = False,
        garble: bool = False,
        steps_by_itself: bool = False,
    ) -> None:
        self.config, self.reward_fn = config, reward_fn
        self.model, self.tokenizer = (SteppingWrapper if steps_by_itself else Wrapper)(Policy()), Tokenizer()
        self.opt = SimpleNamespace(step=lambda: None)
        self.accelerator = SimpleNamespace(
            is_main_process=is_main,
            backward=lambda loss: self.model.step() if steps_by_itself else None,
            unwrap_model=lambda model: model.module,
        )
        if full_reference:
            self.ref_model = Policy()
        self.logprobs = logprobs_of_labels
        self.stored: list[Any] = []
        self._extra_token, self._garble = extra_token, garble

    def learn(self, iterations: int) -> None:
        self.make_experience(SAMPLES)
        self.evaluate()
        for iteration in range(iterations):
            for _ in range(SAMPLES // MICRO):
                queries, responses = torch.zeros(MICRO, PROMPT), torch.zeros(MICRO, NEW)
                loss, _ = self.loss(SimpleNamespace(query_tensors=queries, response_tensors=responses))
                self.accelerator.backward(loss)
            self.opt.step()
            self.save_pretrained("checkpoint")
            if iteration + 1 < iterations:
                self.make_experience(SAMPLES, iteration)

    def make_experience(self, num_rollouts: int, iter_count: int = 0) -> None:
        prompts = torch.ones(num_rollouts, PROMPT, dtype=torch.int64)
        samples = self.generate(prompts)
        if self.accelerator.is_main_process:
            texts, _, outputs = self.decode(prompts, samples)
            self.reward_fn(samples=texts, prompts=texts, outputs=outputs, tokenizer=self.tokenizer)
        _, _, outputs = self.decode(prompts, samples)
        responses = torch.tensor(self.tokenizer(outputs).input_ids)
        tokens = torch.cat([prompts, responses], 1)
        logits = self.model(tokens)
        reference = self.ref_model(tokens) if hasattr(self, "ref_model") else self.model.forward_hydra(tokens)
        self.logprobs(logits[:, :-1], tokens[:, 1:] % 10)
        self.logprobs(reference[:, :-1], tokens[:, 1:] % 10)
        rewards = torch.full((NEW,), 0.25)
        pairs = zip(prompts, responses, strict=True)
        self.push_to_store(
            [SimpleNamespace(query_tensor=one, response_tensor=two, rewards=rewards) for one, two in pairs]
        )

    def generate(self, prompts: torch.Tensor) -> torch.Tensor:
        length = NEW + self._extra_token
        return torch.cat([prompts, torch.arange(2, 2 + length).repeat(len(prompts), 1)], 1)

    def decode(self, prompts: torch.Tensor, samples: torch.Tensor) -> Any:
        outputs = [" ".join(map(str, row[PROMPT:].tolist())) for row in samples]
        return outputs, outputs, [text.replace("2", "3") for text in outputs] if self._garble else outputs

    def loss(self, batch: Any) -> Any:
        self.logprobs(torch.zeros(MICRO, 3, 10), torch.zeros(MICRO, 3, dtype=torch.int64))
        return torch.tensor(1.0), {"losses/total_loss": 1.0, "losses/policy_loss": 0.25, "losses/value_loss": 0.75}

    def push_to_store(self, data: list[Any]) -> None:
        self.stored = data

    def evaluate(self) -> dict[str, float]:
        raise AssertionError("nothing is evaluated")

    def save_pretrained(self, directory: str) -> None:
        raise AssertionError("nothing is saved")


class Timed(TimedPPO, StandIn):
    pass


def run(iterations: int = 1, **stand_in: Any) -> tuple[list[str], IterationState, list[dict[str, int]]]:
    workload = {"prompt_tokens": PROMPT, "new_tokens": NEW, "rollouts": SAMPLES, "micro_batch": MICRO}
    tally = Tally(tiny_body(workload=workload, shape={"positions": 64}), ALONE)
    counted: list[dict[str, int]] = []
    # an engine that steps by itself makes more steps here than the manifest has
    counts = (lambda: None) if stand_in.get("steps_by_itself") else lambda: counted.append(tally.counts(60, 100))
    state = IterationState(tally, counts)
    state.clock = journal = Journal()
    owner = SimpleNamespace(state=state)
    trainer = Timed(config=None, owner=owner, reward_fn=lambda outputs, **_: [0.5] * len(outputs), **stand_in)
    trainer.logprobs = state.in_turn(trainer.logprobs, ("score", False), ("reference", False))
    trainer.learn(iterations)
    trainer.end_iteration()
    return journal.lines, state, counted


EXPERIENCE = [
    *("open generate", "close"),
    *("part other/decode", "part over other/decode"),
    *("open reward alone", "close"),
    *("part other/decode", "part over other/decode", "part other/tokenise", "part over other/tokenise"),
    *("open score", "close more", "open reference", "close more"),
    *("open score", "close", "open reference", "close"),
]
TRAINING = [
    "open train",
    *("part train/forward", "part over train/forward", "part train/backward", "part over train/backward") * 2,
    *("part train/optimizer", "part over train/optimizer", "close"),
]


@pytest.mark.parametrize("full_reference", [False, True], ids=["hydra", "full reference"])
def test_edges_are_told_in_the_order_of_the_trainers_calls_and_an_iteration_ends_where_the_next_begins(full_reference):
    lines, state, counted = run(iterations=3, full_reference=full_reference)
    one = [*EXPERIENCE, *TRAINING, "stop"]
    assert lines == ["begin 0", *one, "begin 1", *one, "begin 2", *one]
    assert state.iteration + 1 == len(counted) == 3


def test_a_rank_that_is_not_main_tells_of_the_reward_phase_too() -> None:
    lines, _, _ = run(is_main=False)
    assert lines.count("open reward alone") == 1
    assert lines.count("part other/decode") == 1


def test_counts_come_from_what_was_stored_and_statistics_are_means_over_micro_batches() -> None:
    _, state, (counts,) = run()
    assert (counts["samples"], counts["response_tokens"], counts["padded_tokens"]) == (SAMPLES, SAMPLES * NEW, 0)
    assert (counts["trained_tokens"], counts["optimizer_steps"]) == (SAMPLES * (PROMPT + NEW), 1)
    assert [*map(state.mean, ("loss", "policy_loss", "value_loss"))] == [1.0, 0.25, 0.75]
    assert math.isnan(state.mean("gradient_norm")), "nobody told a norm"
    assert sum(state.values["scores"]) == 0.5 * SAMPLES and sum(state.values["rewards"]) == 0.25 * NEW * SAMPLES


@pytest.mark.parametrize(
    ("fault", "words"),
    [("extra_token", r"4 responses of 9; 8 \+ 8 tokens were forced"), ("garble", "re-tokenising changed")],
)
def test_responses_that_are_not_what_was_forced_fail_the_run(fault: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(**{fault: True})


def test_an_engine_that_steps_inside_of_backward_is_timed_there_and_asked_for_its_norm() -> None:
    lines, state, _ = run(steps_by_itself=True)
    inside = ["part train/backward", "part train/optimizer", "part over train/optimizer", "part over train/backward"]
    first = lines.index("part train/backward")
    assert lines[first : first + 4] == inside
    assert state.tally.optimizer_steps == 2
    assert state.mean("gradient_norm") == 2.0
