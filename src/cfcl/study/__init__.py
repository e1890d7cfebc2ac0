"""The study: which runs each figure needs, what they show, and a verdict on every claim."""
