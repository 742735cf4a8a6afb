"""Generation by an engine of its own beside the policy, which is given the policy's weights in each iteration."""
