"""SkyRL, in its own image: its trainer with a callback that writes the step log."""
