"""The one error that reading a checkpoint raises."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used as it is; `field` names the file, key or tensor that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
