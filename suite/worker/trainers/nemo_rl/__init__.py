"""NeMo-RL, in its own image: its GRPO example, whose logger writes the step log too."""
