"""Decoders of which less is to be seen than they offer."""

from specqual.contract import Claims, Decoder, Event, Request


class BlackBox:
    """Any decoder with nothing but the base protocol to be seen."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    @property
    def claims(self) -> Claims:
        return self._inner.claims

    def submit(self, request: Request) -> int:
        return self._inner.submit(request)

    def step(self) -> list[Event]:
        return self._inner.step()

    def cancel(self, request_id: int) -> None:
        self._inner.cancel(request_id)

    def close(self) -> None:
        self._inner.close()
