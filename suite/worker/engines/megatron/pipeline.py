"""What stages send each other when micro batches differ in length: shapes that every stage knows beforehand."""

import copy
from typing import Any, Dict, Iterator, Sequence, Tuple

from suite.worker.engines.megatron.batch import MicroBatch
from suite.worker.engines.megatron.stack import P2PCommunicator, ProcessGroupCollection, parallel_state

Shape = Tuple[int, int, int]


class KnownShapes(P2PCommunicator):
    """Megatron's communicator of a stage, for one pass over micro batches of these shapes, in their order.

    Megatron's own way with variable lengths sends every tensor's shape ahead of it and waits for the device. Here each
    stage has all samples, so it knows what comes.
    """

    def __init__(self, config: Any, shapes: Sequence[Shape]) -> None:
        own = copy.copy(config)
        own.variable_seq_lengths = True
        super().__init__(parallel_state.get_pipeline_model_parallel_group(), own)
        self._activations: Iterator[Shape] = iter(shapes)
        self._gradients: Iterator[Shape] = iter(shapes)

    def _communicate_shapes(
        self, _to_next: Any, _to_previous: Any, recv_prev: bool, recv_next: bool
    ) -> Tuple[Shape, Shape]:
        nothing = (0, 0, 0)
        return (
            next(self._activations) if recv_prev else nothing,
            next(self._gradients) if recv_next else nothing,
        )


def schedule_options(config: Any, micros: Sequence[MicroBatch]) -> Dict[str, Any]:
    first = micros[0].tokens
    options: Dict[str, Any] = {"seq_length": first.size(1), "micro_batch_size": first.size(0)}
    if config.pipeline_model_parallel_size > 1 and len({micro.tokens.shape for micro in micros}) > 1:
        split = config.tensor_model_parallel_size if config.sequence_parallel else 1
        shapes = [(micro.tokens.size(1) // split, micro.tokens.size(0), config.hidden_size) for micro in micros]
        options["p2p_communicator"] = KnownShapes(config, shapes)
        options["pg_collection"] = ProcessGroupCollection.use_mpu_process_groups(
            required_pgs=["tp", "pp", "cp", "embd", "pos_embd", "dp_cp"]
        )
    return options
