"""Generation engines beside the training engine: vLLM, given the policy's weights in every iteration."""
