"""Errors in OpenAI's format."""

from __future__ import annotations

from starlette.responses import JSONResponse

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 500: "server_error",
         503: "overloaded_error"}


class Refusal(Exception):
    """A request that is refused. param: the field at fault; code: OpenAI's error code."""

    def __init__(self, sentence: str, status: int = 400, *, param: str | None = None,
                 code: str | None = None):
        super().__init__(sentence)
        self.sentence, self.status, self.param, self.code = sentence, status, param, code

    def body(self) -> dict[str, object]:
        kind = TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.sentence, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        headers = {"Retry-After": "1"} if self.status == 503 else None
        return JSONResponse(self.body(), self.status, headers=headers)
