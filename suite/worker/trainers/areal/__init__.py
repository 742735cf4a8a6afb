"""AReaL, in its own image: its PPO trainer as one controller, whose statistics are written to the step log too."""
