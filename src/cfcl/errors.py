"""The one exception a user can cause."""


class CfclError(Exception):
    """Something the user can mend: one line that names the value, the rule and the remedy."""
