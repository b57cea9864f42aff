"""Run a Flower app folder in this process: in Flower's simulation engine (Ray), or without any engine."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from stackfu.errors import InputError
from stackfu_integration.flower.in_process import InProcessGrid

__all__ = ["APP_FOLDER", "load_app", "run_in_process", "run_with_ray", "simulate"]

APP_FOLDER = Path(__file__).resolve().parents[2] / "flower-app"


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


#: By the type that a setting has in the app's own config: how it is read, and what it must be.
_READ: dict[type, tuple[Callable[[str], Any], str]] = {
    bool: (_flag, "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
    str: (str, "text"),
}


def load_app(
    folder: Path, overrides: Mapping[str, Any] | None = None
) -> tuple[ServerApp, ClientApp, dict[str, Any]]:
    """Load server app, client app and run config of a Flower app; unknown overrides are refused."""
    path = folder / "pyproject.toml"
    if not path.is_file():
        raise InputError("app", "has no pyproject.toml", value=folder)
    settings = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]
    config: dict[str, Any] = dict(settings["config"])
    for name, value in (overrides or {}).items():
        if name not in config:
            raise InputError("run config", f"the app does not know {name}", value=value)
        read, what = _READ[type(config[name])]
        try:
            config[name] = read(str(value))
        except ValueError as error:
            raise InputError("run config", f"{name} must be {what}", value=value) from error
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    # Ray's workers import the app by name
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(folder), *_python_path()]))
    components = []
    for name in ("serverapp", "clientapp"):
        module, attribute = settings["components"][name].split(":")
        components.append(getattr(importlib.import_module(module), attribute))
    return components[0], components[1], config


def _python_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]


def _node_config(config: Mapping[str, Any], client: int, policy: str) -> dict[str, Any]:
    """Settings of a client's own operator in a deployment: its number, its folder, its policy."""
    folder = Path(str(config["folder"])).resolve() / "clients" / str(client)
    return {"partition-id": client, "client-folder": str(folder), "policy": policy}


def _configured(
    server: ServerApp, client: ClientApp, config: dict[str, Any], policy: str
) -> tuple[ServerApp, ClientApp]:
    """Give apps their run config where the engine has none to give."""
    outer = ServerApp()

    @outer.main()
    def main(grid, context: Context) -> None:  # type: ignore[no-untyped-def]
        context.run_config = config
        server(grid, context)

    def with_config(message, context, call_next):  # type: ignore[no-untyped-def]
        # the engine refuses a changed run config, so the app sees a context of its own with the node's state
        node = _node_config(config, int(context.node_config["partition-id"]), policy)
        own = Context(context.run_id, context.node_id, node, context.state, config)
        return client(message, own)

    return outer, ClientApp(client_fn=_unused, mods=[with_config])


def _unused(context: Context) -> Any:
    raise AssertionError("the mod answers every message")


def run_in_process(
    app: Path = APP_FOLDER, *, wire: bool = False, policy: str = "", **overrides: Any
) -> InProcessGrid:
    """Run the app without an engine; return the grid, which knows the bytes that passed.

    ``policy="open"`` lets clients release everything; otherwise they have the default, or one in their folders.
    """
    server, client, config = load_app(app, _dashed(overrides))
    nodes = [_node_config(config, i, policy) for i in range(config["clients"])]
    grid = InProcessGrid(client, nodes, config, wire=wire)
    server(grid, Context(1, 0, {}, RecordDict(), config))
    return grid


def simulate(app: Path = APP_FOLDER, *, cpus: float = 1.0, policy: str = "", **overrides: Any) -> Path:
    """Run the app in Flower's simulation engine and return the folder of its ledger."""
    server, client, config = load_app(app, _dashed(overrides))
    outer, inner = _configured(server, client, config, policy)
    run_with_ray(outer, inner, int(config["clients"]), cpus)
    return Path(str(config["folder"]))


def run_with_ray(server: ServerApp, client: ClientApp, nodes: int, cpus: float = 1.0) -> None:
    """Run two apps in Flower's simulation engine, and leave nothing of Ray behind."""
    import ray
    from flwr.simulation import run_simulation

    backend = {
        "client_resources": {"num_cpus": cpus, "num_gpus": 0.0},
        "init_args": {"num_cpus": os.cpu_count() or 1, "include_dashboard": False, "log_to_driver": False},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        try:
            run_simulation(server, client, nodes, backend_config=backend)  # type: ignore[arg-type]
        finally:
            ray.shutdown()


def _dashed(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in overrides.items()}
