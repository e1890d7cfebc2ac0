"""The order of a step, who waits for whom, and what a missing or bad message means: written once, for every runtime."""
