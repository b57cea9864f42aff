"""The client."""

from my_app.app import Client
from stackfu_integration.flower.torch_client import client_app

app = client_app(Client)
