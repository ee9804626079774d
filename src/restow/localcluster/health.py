"""Health checks of the servers, through their API as for any client.

Not here: the consequences.
"""

from __future__ import annotations

from typing import Final

from restow.aio import Runtime
from restow.apimachinery.status_error import StatusError
from restow.apiserver.pki import Pki
from restow.client import NO_RETRY, ApiClient, ClientConfig, ClientError, HttpTransport
from restow.dashboard.links import login_link

ANSWER_SECONDS_MAX: Final = 5.0
COMPLAINT_CHARACTERS_MAX: Final = 200


class ServerProbe:
    """Checks whether servers are ready, over connections that are reused."""

    def __init__(self, pki: Pki, bind: str, runtime: Runtime) -> None:
        self._pki = pki
        self._host = reachable(bind)
        self._runtime = runtime
        self._clients: dict[int, ApiClient] = {}
        self._retired: list[ApiClient] = []
        """Clients with earlier keys. One of them may still be in use; there are few, because keys
        are renewed once a year."""

    def take(self, pki: Pki) -> None:
        """Use these keys from now on: the previous certificate is about to expire."""
        self._pki = pki
        self._retired += self._clients.values()
        self._clients = {}

    def client(self, port: int) -> ApiClient:
        """A client of one port, with administrator permissions."""
        if port not in self._clients:
            self._clients[port] = ApiClient.connect(
                self._config(port), runtime=self._runtime, retry=NO_RETRY
            )
        return self._clients[port]

    def _config(self, port: int) -> ClientConfig:
        return ClientConfig(
            server=f"https://{self._host}:{port}",
            ca_pem=self._pki.serving_ca_pem.decode(),
            token=self._pki.admin_token,
            # Some servers require a client certificate.
            client_cert_pem=self._pki.admin_cert_pem.decode(),
            client_key_pem=self._pki.admin_key_pem.decode(),
        )

    async def complaint(self, port: int) -> str:
        """Why a server is not ready; empty if it is."""
        try:
            async with self._runtime.clock.timeout(ANSWER_SECONDS_MAX):
                await self.client(port).text("/readyz")
        except TimeoutError:
            return f"no response within {ANSWER_SECONDS_MAX:g} s"
        except (ClientError, StatusError) as error:
            return str(error).splitlines()[0][:COMPLAINT_CHARACTERS_MAX]
        return ""

    async def dashboard_link(self, port: int) -> str | None:
        """A login link for the first user, valid for a short time; None if not available."""
        clock = self._runtime.clock
        transport = HttpTransport(self._config(port), clock=clock)
        try:
            return (await login_link(transport, clock, seconds_max=ANSWER_SECONDS_MAX)).url
        except (ClientError, StatusError):
            return None
        finally:
            await transport.close()

    async def close(self) -> None:
        for client in (*self._retired, *self._clients.values()):
            await client.close()


def reachable(bind: str) -> str:
    """The address at which a client on this machine reaches the listener."""
    if bind in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{bind}]" if ":" in bind else bind
