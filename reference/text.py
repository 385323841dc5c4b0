"""Text beside token ids: the tokenizer of a checkpoint directory, if it has one."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer  # type: ignore[import-untyped]

from specqual.contract.errors import CheckpointError


class Text:
    """Encodes and decodes with a tokenizer.json; special tokens are neither added nor hidden."""

    def __init__(self, file: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(file.name, f"is not a readable tokenizer ({error})") from None

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text; ValueError if it holds half of a surrogate pair, as bytes that are no UTF-8 become."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"text: is not valid Unicode ({error.reason} at {error.start})") from None
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))


def load_text(directory: Path) -> Text | None:
    """The tokenizer of a checkpoint directory, or None; CheckpointError if it is there and unreadable."""
    file = directory / "tokenizer.json"
    return Text(file) if file.exists() else None
