"""The trainers: stacks that bring their own PPO iteration, imported only when a manifest names them."""
