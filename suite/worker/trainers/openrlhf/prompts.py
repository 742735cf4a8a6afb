"""The manifest's prompts as OpenRLHF reads them: texts, each with the label of its samples."""

from typing import Any, Dict, List, Tuple

from suite.worker.asked import draw_prompts, sample_lengths
from suite.worker.rewards import scores_of_all
from suite.worker.trainers.drawn_model import as_text
from suite.worker.trainers.openrlhf.label import Label


def rows(manifest: Dict[str, Any], batches: int) -> List[Dict[str, str]]:
    """A prompt each, in the order in which they are to be generated: ``input`` and ``label``."""
    found = []
    prompts, responses = sample_lengths(manifest["workload"], manifest["work"])
    group = manifest["workload"].get("group", 1)
    reward, vocab = manifest["workload"]["reward"], manifest["size"]["vocab"]
    for batch in range(batches):
        texts = as_text(draw_prompts(manifest, batch), vocab)
        known = reward["kind"] != "token-below"
        scores = scores_of_all(manifest, batch).tolist() if known else None
        for first in range(0, len(prompts), group):
            own = slice(first, first + group)
            label = Label(
                batch, first, responses[own], None if scores is None else scores[own], reward.get("threshold", 0)
            )
            words = texts[first].split(" ")[: prompts[first]]
            found.append({"input": " ".join(words), "label": label.write()})
    return found


def loader(manifest: Dict[str, Any], batches: int, strategy: Any, tokenizer: Any) -> Tuple[Any, None, int]:
    """What ``prepare_datasets`` gives: the prompts by OpenRLHF's own data set and loader, in their order and from
    memory; nothing to evaluate; and the number of optimizer steps."""
    from openrlhf.datasets import PromptDataset
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = PromptDataset(rows(manifest, batches), tokenizer, strategy)
    steps = batches * manifest["workload"]["ppo_epochs"] * manifest["workload"]["optimizer_steps"]
    return StatefulDataLoader(data, batch_size=1, shuffle=False, collate_fn=data.collate_fn), None, steps
