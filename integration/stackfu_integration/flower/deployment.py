"""A deployment on one machine: SuperLink and SuperNodes as processes, with TLS and all doors closed (:mod:`.doors`).

    with Deployment(Path("deployment"), clients=4) as deployment:
        run = deployment.submit(folder="runs/flower")
        deployment.wait_for(run)

Certificates, keys and tokens are made when the deployment starts and live in its folder. Every SuperNode has a key
pair, and only nodes with a registered public key may connect; only operators start runs; only the process
that knows a secret runs server apps. The commands can be typed by hand (``docs/howto/flower.md``).
"""

from __future__ import annotations

import ctypes
import datetime
import ipaddress
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stackfu.errors import InputError, StackfuError
from stackfu_integration.flower.simulation import APP_FOLDER
from stackfu_integration.flower.superlink_auth import admit_operator, log_in
from stackfu_integration.storage import write_text

__all__ = ["Deployment", "DeploymentError", "make_certificates", "make_node_key"]

_VALID = datetime.timedelta(days=30)
_CONNECTION = "deployment"


class DeploymentError(StackfuError):
    """A process of the deployment did not do what it should."""


def _private(path: Path, key: ec.EllipticCurvePrivateKey, encoding: serialization.PrivateFormat) -> None:
    """Write a private key that only its owner can read."""
    write_private(path, key.private_bytes(serialization.Encoding.PEM, encoding, serialization.NoEncryption()))


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(data)


def make_certificates(folder: Path) -> None:
    """Write ``ca.crt``, ``server.pem`` and ``server.key`` for servers on the loopback address."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)

    def build(subject: str, key: Any, issuer: str, extensions: Iterable[tuple[Any, bool]]) -> Any:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + _VALID)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder

    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    identity = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    root = build(
        "stackfu CA",
        authority,
        "stackfu CA",
        [(x509.BasicConstraints(ca=True, path_length=0), True), (usage, True), (identity, False)],
    ).sign(authority, hashes.SHA256())
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    certificate = build(
        "localhost",
        server,
        "stackfu CA",
        [(names, False), (x509.BasicConstraints(ca=False, path_length=None), True), (by, False)],
    ).sign(authority, hashes.SHA256())
    (folder / "ca.crt").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _private(folder / "server.key", server, serialization.PrivateFormat.PKCS8)


def make_node_key(folder: Path, number: int) -> tuple[Path, Path]:
    """Write the key pair of a SuperNode; return the paths of its private and its public part."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = folder / f"node-{number}", folder / f"node-{number}.pub"
    _private(private, key, serialization.PrivateFormat.OpenSSH)
    openssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    public.write_bytes(key.public_key().public_bytes(*openssh))
    return private, public


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Deployment:
    """A SuperLink and ``clients`` SuperNodes; a context manager that leaves no process behind."""

    folder: Path
    clients: int
    app: Path = APP_FOLDER
    patience: float = 120.0
    nodes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = Path(self.folder).resolve()
        self._certificates, self._keys = self.folder / "certificates", self.folder / "keys"
        self._port = _free_port()
        self._logs = ExitStack()
        self._started: list[subprocess.Popen[bytes]] = []
        bin_folder = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([bin_folder, os.environ.get("PATH", "")]),
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }

    @property
    def address(self) -> str:
        """Address of the SuperLink."""
        return f"127.0.0.1:{self._port}"

    # ---------------------------------------------------------------- life

    def __enter__(self) -> Deployment:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Make keys, start the SuperLink, register the nodes' keys and start the nodes."""
        make_certificates(self._certificates)
        config = (
            f'[superlink]\ndefault = "{_CONNECTION}"\n\n[superlink.{_CONNECTION}]\n'
            f'address = "127.0.0.1:{self._port}"\n'
            f'root-certificates = "{self._certificates / "ca.crt"}"\n'
        )
        write_text(self.folder / "flwr" / "config.toml", config)
        operators, secret = self._certificates / "operators.json", self._certificates / "superexec.secret"
        log_in(self.folder / "flwr", self.address, admit_operator(operators, "operator"))
        write_private(secret, secrets.token_bytes(32))
        self._superlink = self._start(
            "superlink",
            sys.executable,
            *("-m", "stackfu_integration.flower.superlink_auth", "--operators", str(operators)),
            *("--host", "127.0.0.1", "--port", str(self._port)),
            *self._server_tls(),
            "--enable-supernode-auth",
            *("--isolation", "process", "--superexec-auth-secret-file", str(secret)),
            "--disable-runtime-dependency-installation",
            *("--database", str(self.folder / "superlink.sqlite")),
        )
        self._wait_for_port()
        self._superexec = self._start(
            "superexec",
            "flower-superexec",
            *("--runtime-api-address", self.address),
            *("--root-certificates", str(self._certificates / "ca.crt")),
            *("--superexec-auth-secret-file", str(secret)),
        )
        for number in range(self.clients):
            self.register(number)
        for number in range(self.clients):
            self.start_node(number)

    def stop(self) -> None:
        """End every process that was started, and their children."""
        family: list[psutil.Process] = []
        for process in self._started:
            try:
                parent = psutil.Process(process.pid)
                family += [*parent.children(recursive=True), parent]
            except psutil.NoSuchProcess:
                continue
        for member in family:
            _signal(member.terminate)
        _, alive = psutil.wait_procs(family, timeout=5.0)
        for member in alive:
            _signal(member.kill)
        psutil.wait_procs(alive, timeout=5.0)
        for process in self._started:
            with suppress(ProcessLookupError):  # a child may have outlived its parent
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=5.0)
        self._logs.close()

    # ---------------------------------------------------------------- nodes

    def register(self, number: int) -> None:
        """Make a node's key pair and register its public part with the SuperLink."""
        _, public = make_node_key(self._keys, number)
        self._flwr("supernode", "register", str(public), _CONNECTION)

    def start_node(self, number: int, key: int | None = None) -> subprocess.Popen[bytes]:
        """Start the SuperNode of a client; with the key pair ``key`` of another, if need be."""
        process = self._start(
            f"supernode-{number}" if key is None else f"supernode-{number}-key-{key}",
            "flower-supernode",
            *("--superlink", f"127.0.0.1:{self._port}"),
            *("--root-certificates", str(self._certificates / "ca.crt")),
            *("--auth-supernode-private-key", str(self._keys / f"node-{number if key is None else key}")),
            *("--host", "127.0.0.1", "--port", str(_free_port())),
            *self._server_tls(),
            *("--node-config", self._node_config(number)),
        )
        self.nodes[number if key is None else self.clients + key] = process
        return process

    def _node_config(self, number: int) -> str:
        folder = self.folder / "clients" / str(number)
        return f'partition-id={number} num-partitions={self.clients} client-folder="{folder}"'

    def kill_node(self, number: int) -> None:
        """Kill a SuperNode and whatever it is running, at once."""
        self._kill(self.nodes[number])

    def kill_server_app(self) -> bool:
        """Kill the process that runs the server app, as a crash would; say whether there was one."""
        for child in psutil.Process(self._superexec.pid).children(recursive=True):
            try:
                if any("flwr-serverapp" in part for part in child.cmdline()):
                    child.kill()
                    return True
            except psutil.NoSuchProcess:
                continue
        return False

    # ---------------------------------------------------------------- runs

    def submit(self, **run_config: Any) -> int:
        """Submit the app, as ``flwr run`` does; return the run's number."""
        settings = " ".join(f"{name.replace('_', '-')}={_toml(value)}" for name, value in run_config.items())
        out = self._flwr("run", str(self.app), _CONNECTION, "--run-config", settings, "--format", "json")
        answer = json.loads(out)
        if not answer.get("success"):
            raise DeploymentError(f"the run was refused: {out}")
        return int(answer["run-id"])

    def status(self, run: int) -> str:
        """Return the state of a run, e.g. ``running`` or ``finished:completed``."""
        answer = json.loads(self._flwr("list", _CONNECTION, "--run-id", str(run), "--format", "json"))
        return str(answer["runs"][0]["status"])

    def wait_for(self, run: int, timeout: float | None = None) -> str:
        """Wait until a run is over and return its final state."""
        deadline = time.monotonic() + (self.patience if timeout is None else timeout)
        pause = 1.0
        while not (state := self.status(run)).startswith("finished"):
            if time.monotonic() > deadline:
                raise DeploymentError(f"run {run} is still {state}; logs are in {self.folder / 'logs'}")
            time.sleep(pause)
            pause = min(1.5 * pause, 15.0)  # every look starts a process, which takes its share of the cores
        return state

    # ---------------------------------------------------------------- processes

    def _server_tls(self) -> list[str]:
        names = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}
        return [part for option, name in names.items() for part in (option, str(self._certificates / name))]

    def _start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        stream: IO[bytes] = self._logs.enter_context(log.open("ab"))
        process = subprocess.Popen(
            [self._program(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        self._started.append(process)
        return process

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=self._environment["PATH"])  # also of a whole path
        if found is None:
            raise DeploymentError(f"{name} is not installed; pip install 'stackfu-integration[flower]'")
        return found

    def _flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._program("flwr"), *arguments],
            capture_output=True,
            text=True,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            timeout=self.patience,
            check=False,
        )
        if done.returncode != 0:
            raise DeploymentError(f"flwr {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def _wait_for_port(self) -> None:
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            if self._superlink.poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.2)
        log = (self.folder / "logs" / "superlink.log").read_text()
        raise DeploymentError(f"the SuperLink does not listen:\n{log[-2000:]}")

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10.0)


def _end_with_parent() -> None:
    """Ask Linux to end this process when the one that started it ends, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _signal(send: Any) -> None:
    with suppress(psutil.NoSuchProcess):
        send()


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    if '"' not in value:
        return json.dumps(value)
    if "'" in value:  # Flower ends a value at the next mark of the kind that it began with
        raise InputError("run config", "a value cannot hold both kinds of quotation marks", value=value)
    return f"'{value}'"
