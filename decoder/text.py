"""The tokenizer beside a checkpoint, as far as a decoder needs it: ids to text, for stop strings."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer  # type: ignore[import-untyped]

from specqual.contract.errors import CheckpointError


class Text:
    """Decodes ids with a tokenizer.json; special tokens are shown."""

    def __init__(self, file: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more special
            raise CheckpointError(file.name, f"cannot be read as a tokenizer ({error})") from None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
