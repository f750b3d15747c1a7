"""One typed client of the server: finds it, identifies itself, asks what it can do."""

from podwright.client._client import TIMEOUT, Client
from podwright.client._transport import FakeTransport, Transport
from podwright.client._unix import UnixTransport

__all__ = ["TIMEOUT", "Client", "FakeTransport", "Transport", "UnixTransport"]
