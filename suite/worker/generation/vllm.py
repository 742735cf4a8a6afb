"""vLLM in the process of each rank: it is given the policy's weights and generates samples of forced lengths.

It joins the run's process group (an external launcher). Ranks of one replica are one tensor parallel engine.
"""

import os
import tempfile
import time
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Type
from unittest import mock

import torch

from suite.worker import vllm_common
from suite.worker.asked import sample_lengths
from suite.worker.engines.base import Engine
from suite.worker.generation.base import Generator
from suite.worker.hugging_face import write_configuration
from suite.worker.manifest import stream_seed
from suite.worker.models import dtype_name
from suite.worker.rank import ConfigError
from suite.worker.samples import Samples, join_responses
from suite.worker.world import World

#: what vLLM reads from its environment: no output among the events
_VARIABLES = {**vllm_common.QUIET, **vllm_common.ONE_PROCESS, "VLLM_LOGGING_STREAM": "ext://sys.stderr"}
#: what is imported before a process group is joined: the engine, and whatever is compiled or patched as it is imported
_MODULES = (
    "vllm.v1.engine.llm_engine",
    "vllm.v1.sample.sampler",
    "vllm.model_executor.layers.vocab_parallel_embedding",
    "vllm.model_executor.layers.linear",
)
_MOST_SAMPLES, _MOST_PROMPT_TOKENS = 256, 8192
#: Of the device memory that is free once the training engine stands: for vLLM's cache at most; training needs the rest.
_CACHE_SHARE_OF_FREE = 0.5


@contextmanager
def _compiled_on_cuda_alone(device: str) -> Iterator[None]:
    """Of what is imported and built within: on a CPU helpers of its sampler are not, which takes half a minute and
    saves microseconds; on CUDA its model is, also beside DeepSpeed, which turns torch's compiler off."""
    with mock.patch.dict(os.environ, {"TORCHDYNAMO_DISABLE": "1" if device == "cpu" else "0"}):
        yield


def cache_blocks(lengths: Sequence[int], rows: int) -> int:
    """Blocks for all samples at once of the replica that needs most, whichever asks: vLLM takes the least that ranks
    ask for. ``lengths``: tokens of each sample, those of a replica ``rows`` in a row."""
    replicas = (sorted(lengths[first : first + rows]) for first in range(0, len(lengths), rows))
    return max(vllm_common.blocks_for(own[-_MOST_SAMPLES:]) for own in replicas)


class VllmGenerator(Generator):
    """Built on every rank at the same time, after the training engine. Its work beats ``progress``."""

    def __init__(self, manifest: Dict[str, Any], world: World, engine: Engine, progress: Any) -> None:
        self._manifest, self._training, self._progress = manifest, engine, progress
        self._world = world
        self._sleeps = bool(manifest["layout"].get("engine_sleep"))
        self._generations, self._is_checked = 0, False
        with self._own_random_numbers(), vllm_common.threads_kept(), _compiled_on_cuda_alone(world.device.type):
            self._engine = self._build()
        self.notes = tuple(self._notes())

    def sync(self) -> None:
        """Raises ConfigError where a weight of vLLM's model got none of the policy's."""
        if self._sleeps:
            self._engine.wake_up(["weights"])
        model = self._engine.model_executor.driver_worker.worker.model_runner.model
        with torch.no_grad():
            loaded = model.load_weights(self._weights())
        if not self._is_checked:
            vllm_common.check_loaded(model, loaded, "the policy")
            self._is_checked = True
        if self._sleeps:
            self._engine.wake_up(["kv_cache"])
        self._engine.reset_prefix_cache()  # what it holds was computed from other weights

    def generate(self, prompts: Samples) -> Samples:
        with self._own_random_numbers():
            outputs, self.finish_seconds = self._run(prompts)
        device = prompts.tokens.device
        rows, logprobs = [], []
        for prompt, length, output in zip(prompts.tokens, prompts.prompt_lengths, outputs):
            response = torch.tensor(list(output.token_ids), device=device, dtype=prompts.tokens.dtype)
            rows.append(torch.cat([prompt[:length], response]).unsqueeze(0))
            logprobs.append(torch.tensor(list(output.logprobs.logprobs), device=device).float().unsqueeze(0))
        lengths = [len(output.token_ids) for output in outputs]
        self.logprobs = join_responses(logprobs, max(lengths))
        tokens = join_responses(rows, max(row.size(1) for row in rows))
        return Samples(tokens, prompts.prompt_lengths, lengths)

    def sleep(self) -> None:
        """Weights are dropped, not kept in host memory: the next ``sync`` brings new ones."""
        if self._sleeps:
            self._engine.sleep(level=2)

    def _run(self, prompts: Samples) -> Tuple[List[Any], List[float]]:
        """What vLLM made of each prompt, in their order, and when it was whole."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        began = time.perf_counter()
        lengths = zip(prompts.tokens.tolist(), prompts.prompt_lengths, prompts.response_lengths)
        for number, (tokens, prompt, response) in enumerate(lengths):
            how = SamplingParams(
                temperature=self._manifest["workload"]["ppo"]["temperature"],
                top_p=1.0,
                top_k=0,
                min_tokens=response,
                max_tokens=response,
                ignore_eos=True,
                logprobs=0,  # of the sampled token alone
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            self._engine.add_request(str(number), {"prompt_token_ids": tokens[:prompt]}, how)
        outputs: Dict[int, Any] = {}
        seconds = [0.0] * len(prompts)
        while self._engine.has_unfinished_requests():
            for done in self._engine.step():
                if done.finished:
                    outputs[int(done.request_id)] = done.outputs[0]
                    seconds[int(done.request_id)] = time.perf_counter() - began
            self._progress.beat()
        return [outputs[number] for number in range(len(prompts))], seconds

    def _build(self) -> Any:
        from vllm import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        measure, layout = self._manifest["measure"], self._manifest["layout"]
        # of each sample of all replicas, as the loop deals them out
        prompts, responses = sample_lengths(self._manifest["workload"], self._manifest["work"])
        lengths = [sum(pair) for pair in zip(prompts, responses)]
        rows = self._manifest["work"]["replica_rollouts"]
        first = self._training.data_parallel_rank * rows
        prefill = min(sum(prompts[first : first + rows]), _MOST_PROMPT_TOKENS)
        is_cuda = self._world.device.type == "cuda"
        longest, samples = max(lengths), min(rows, _MOST_SAMPLES)
        with tempfile.TemporaryDirectory(prefix="suite-vllm-") as folder:
            dtype = dtype_name(measure["precision"])
            write_configuration(folder, self._manifest["size"], dtype)
            arguments = EngineArgs(
                model=folder,
                load_format="dummy",
                skip_tokenizer_init=True,
                generation_config="vllm",
                dtype=dtype,  # by itself it would make bf16 of fp32
                seed=measure["seed"],
                distributed_executor_backend="external_launcher",
                tensor_parallel_size=layout["tensor"],
                enforce_eager=not is_cuda,
                enable_sleep_mode=self._sleeps,
                max_model_len=longest,
                max_num_seqs=samples,
                max_num_batched_tokens=max(longest, samples, prefill),
                kv_cache_memory_bytes=self._cache_bytes(cache_blocks(lengths, rows)),
                # not what is taken, which is the line above: what must be free for vLLM to start at all
                gpu_memory_utilization=vllm_common.SHARE_THAT_MUST_BE_FREE,
                logprobs_mode="raw_logprobs",
                disable_log_stats=True,
            )
            return LLMEngine.from_engine_args(arguments)

    def _cache_bytes(self, blocks: int) -> int:
        """Of a GPU at most the share asked for, or one of what is free."""
        precision, tensor = self._manifest["measure"]["precision"], self._manifest["layout"]["tensor"]
        wanted = vllm_common.cache_bytes(self._manifest["size"], precision, blocks, tensor)
        if self._world.device.type != "cuda":
            return wanted
        free, total = torch.cuda.mem_get_info(self._world.device)
        percent = self._manifest["layout"].get("engine_memory")
        return min(wanted, int(total * percent / 100 if percent else free * _CACHE_SHARE_OF_FREE))

    def _weights(self) -> Iterator[Tuple[str, torch.Tensor]]:
        for name, tensor in self._training.weights():
            self._progress.beat()
            yield name, tensor

    @contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """vLLM draws from torch's generators, and on CUDA seeds samples from NumPy's: seeded alike on all ranks of a
        replica, anew for each generation, and given back to training as they were."""
        devices = [self._world.device] if self._world.device.type == "cuda" else []
        seed = stream_seed(self._manifest, self._training.data_parallel_rank, self._generations)
        self._generations += 1
        numpys = import_module("numpy.random")  # vLLM has it
        state = numpys.get_state()
        try:
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(seed)
                numpys.seed(seed % 2**32)
                yield
        finally:
            numpys.set_state(state)

    def _notes(self) -> Iterator[str]:
        device, tensor = self._world.device.type, self._manifest["layout"]["tensor"]
        yield "generation by {} in each rank's process".format(vllm_common.release(device))
        if device == "cpu":
            yield "CPU patch: vLLM's linear layers keep their weights, so that new ones can be written"
            if tensor > 1:
                yield "CPU patch: vLLM's tensor parallel ranks reduce over gloo instead of its own shared memory"


def find_generator(manifest: Dict[str, Any]) -> Optional[Type[VllmGenerator]]:
    """Import the generation engine that the layout names; None where the training stack generates itself. Raises
    ConfigError for one that is not there."""
    if manifest["layout"].get("generation", "hf") != "vllm":
        return None
    device = manifest["measure"]["device"]
    os.environ.update(_VARIABLES)
    os.environ.pop(vllm_common.CACHE_VARIABLE, None)
    with _compiled_on_cuda_alone(device):
        try:
            for module in _MODULES:
                import_module(module)
        except (ImportError, RuntimeError) as error:
            raise ConfigError("vLLM does not load: {}".format(error)) from error
        if device == "cpu":
            vllm_common.keep_linear_weights()
            # Its tensor parallel ranks would meet in shared memory under a name that all runs on the host have and that
            # stays behind; with names that differ it takes the process group instead.
            communicator = import_module("vllm.distributed.device_communicators.cpu_communicator").CpuCommunicator
            communicator._all_group_ranks_share_shm_group_name = lambda _self: False
    return VllmGenerator
