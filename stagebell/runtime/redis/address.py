"""Where a server is: a URL taken apart, and a name for it that never shows the password."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import redis.connection

# redis-py leaves the types of this function open.
_parse_url: Callable[[str], dict[str, Any]] = vars(redis.connection)["parse_url"]


@dataclass(frozen=True, slots=True)
class Address:
    """A server's place and the credentials for it; `str()` gives host:port or the socket's path.

    Read from redis://, rediss:// (TLS) and unix:// URLs. Of a URL's options only `db` and the `ssl_*`
    ones (ca_certs, certfile, keyfile, cert_reqs=none, check_hostname) mean something here.
    """

    host: str
    port: int
    path: str
    username: str | None
    password: str | None = field(repr=False)
    db: int
    tls: Mapping[str, Any] | None = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Address:
        """Take a URL apart.

        Raises:
            ValueError: the URL cannot be understood; the text does not repeat it, it may hold a password.
        """
        try:
            parts = _parse_url(url)
        except (ValueError, AttributeError):  # the latter of what is no text
            raise ValueError(
                "the server's URL must look like redis://[user:password@]host:port/db, rediss://… or "
                "unix:///path/to/socket, with special characters of the password percent-encoded"
            ) from None
        tls = {k: v for k, v in parts.items() if k.startswith("ssl_")}
        return cls(
            host=parts.get("host", "localhost"),
            port=parts.get("port", 6379),
            path=parts.get("path", ""),
            username=parts.get("username"),
            password=parts.get("password"),
            db=parts.get("db", 0),
            tls=tls if url.startswith("rediss:") else None,
        )

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"

    def conceal(self, text: str) -> str:
        """The text without the password (a server may repeat the arguments of a command it refuses)."""
        return text.replace(self.password, "***") if self.password else text

    def ssl_context(self) -> ssl.SSLContext | None:
        """What TLS needs, None without TLS."""
        if self.tls is None:
            return None
        context = ssl.create_default_context(cafile=self.tls.get("ssl_ca_certs"))
        context.check_hostname = self.tls.get("ssl_check_hostname", True)
        if self.tls.get("ssl_cert_reqs") == "none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "ssl_certfile" in self.tls:
            context.load_cert_chain(self.tls["ssl_certfile"], self.tls.get("ssl_keyfile"))
        return context
