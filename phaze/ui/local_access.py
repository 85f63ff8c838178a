"""Who may talk to the page: a browser of this machine that was given its token, and no page from elsewhere."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_LOST = "This page needs its token: open the address that dse ui printed.\n"


@dataclass(frozen=True)
class LocalAccess:
    """ASGI middleware: refuses other hosts in `Host` (DNS rebinding), other origins, and whoever lacks the token.

    `token` is taken from the address once and kept as a cookie of the port, which no other site is sent with.
    """

    app: ASGIApp
    token: str
    port: int

    @property
    def cookie(self) -> str:
        """Cookies do not know ports: each page has a name of its own."""
        return f"phaze-{self.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = self._refusal(scope) or self._entrance(scope)
        if answer is not None:
            await answer(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, sent)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        """Why a request is not for this page, or does not come from it."""
        headers = Headers(scope=scope)
        here = {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost")}
        if headers.get("host") not in here:
            return PlainTextResponse("This page is for this machine alone.\n", 421)
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in here:
            return PlainTextResponse("Other pages may not ask here.\n", 403)
        if scope["method"] not in ("GET", "HEAD") and not headers.get("content-type", "").startswith(
            "application/json"
        ):
            return PlainTextResponse("Questions come as JSON.\n", 415)
        return None

    def _entrance(self, scope: Scope) -> PlainTextResponse | RedirectResponse | None:
        """A redirect to the address without its token, a refusal, or nothing for whoever is in already."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if self._right(query.get("token", [""])[0]):
            answer = RedirectResponse(scope["path"], 303)
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
            return answer
        return None if self._right(self._kept(scope)) else PlainTextResponse(_LOST, 403)

    def _kept(self, scope: Scope) -> str:
        try:
            cookies = SimpleCookie(Headers(scope=scope).get("cookie", ""))
        except CookieError:
            return ""
        return cookies[self.cookie].value if self.cookie in cookies else ""

    def _right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())
