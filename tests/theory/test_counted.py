"""FLOPs of every family against what PyTorch counts while Hugging Face's own models run and learn, sample by sample."""

import pytest

from suite.spec.manifest import SampleLengths
from suite.spec.shape import Experts, Shape
from suite.theory.flops import iteration_flops
from tests.theory.shapes import NoReference, uneven
from tests.theory.test_parameters import rotary_fields

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LENGTHS = SampleLengths(prompt=(5, 3), response=(4, 7))
COMMON = {"name": "tiny", "layers": 2, "hidden": 32, "ffn": 24, "heads": 4, "vocab": 40, "positions": 64}
EXPERTS = Experts(count=4, per_token=2)
SHAPES = {
    "llama": Shape(architecture="llama", kv_heads=2, **COMMON),
    "qwen2": Shape(architecture="qwen2", kv_heads=1, tied_embeddings=False, **COMMON),
    "qwen3, wide heads": Shape(architecture="qwen3", kv_heads=2, head_width=16, **COMMON),
    "mixtral": Shape(architecture="mixtral", kv_heads=2, experts=EXPERTS, **COMMON),
    "qwen3_moe, wide heads": Shape(architecture="qwen3_moe", kv_heads=2, head_width=16, experts=EXPERTS, **COMMON),
}


def build(size):
    config = transformers.AutoConfig.for_model(
        size.architecture, vocab_size=size.vocab, tie_word_embeddings=size.tied_embeddings, **rotary_fields(size)
    )
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    )


class Sample:
    """One sample in the phases of an iteration; logits at the positions before each response token alone."""

    def __init__(self, model, prompt, response):
        self._model, self._prompt, self._response = model, prompt, response
        self._tokens = torch.arange(prompt + response).unsqueeze(0) % model.config.vocab_size

    def prefill(self):
        self._cache = self._model(self._tokens[:, : self._prompt], use_cache=True, logits_to_keep=1).past_key_values

    def decode(self):
        for fed in range(self._prompt, self._prompt + self._response - 1):
            self._model(self._tokens[:, fed : fed + 1], past_key_values=self._cache, use_cache=True)

    def forward(self):
        states = self._model.model(self._tokens, use_cache=False).last_hidden_state
        return self._model.lm_head(states[:, self._prompt - 1 : -1])

    def score(self):
        with torch.no_grad():
            self.forward()

    def train(self):
        self.forward().logsumexp(-1).sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize("trainable", [None, 1], ids=["everything", "last layer"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_phase_computes_what_the_theory_counts(name, trainable):
    from torch.utils.flop_counter import FlopCounterMode

    size, model = SHAPES[name], build(SHAPES[name])
    if trainable is not None:
        model.requires_grad_(False)
        model.model.layers[-1].requires_grad_(True)
        model.model.norm.requires_grad_(True)
    found = dict.fromkeys(("prefill", "decode", "score", "train"), 0)
    for lengths in zip(LENGTHS.prompt, LENGTHS.response, strict=True):
        sample = Sample(model, *lengths)
        for phase in found:
            with FlopCounterMode(display=False) as counter:
                getattr(sample, phase)()
            found[phase] += counter.get_total_flops()
    workload = NoReference.model_validate(uneven(LENGTHS, trainable_layers=trainable).model_dump())
    flops = iteration_flops(size, workload, 2, lengths=LENGTHS)
    assert found == {
        "prefill": flops.generate_prefill,
        "decode": flops.generate_decode,
        "score": flops.score,
        "train": flops.train,
    }
