"""The roles of deploy/ansible, applied: into a root of the test's own (no package, user, service or setting of the kernel), from which the
systems are started by the command of the unit that was written, and measured."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ansible_support
import pytest
from ansible_support import ANSIBLE
from lab_doubles import held_ports
from lab_support import lab, result
from ruamel.yaml import YAML
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.pulsar.system import Pulsar
from streamgauge.vocabulary.gauge_binary import find_gauge

HOST = "one inside=127.0.0.1 node=1 ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}"
APART = "127.0.0.2"
STUDIES = sorted((ANSIBLE / "studies").glob("*.yaml"))
RUN_S = 240
UP_S = 120
"""A JVM starts within seconds; beside four other tests within a minute."""


@pytest.fixture(scope="module")
def playbook(pytestconfig: pytest.Config) -> Path:
    """The program."""
    assert pytestconfig.cache is not None
    return ansible_support.install(Path(pytestconfig.cache.mkdir("tools")))


@dataclass(frozen=True)
class Site:
    """Machines that are one directory."""

    root: Path
    playbook: Path
    ports: dict[str, int]
    variables: dict[str, Any]

    def apply(self, *arguments: str) -> dict[str, int]:
        """Applies site.yaml; how many tasks changed something, by host."""
        given = self.root.parent / "variables.json"
        given.write_text(json.dumps(self.variables), encoding="utf-8")
        inventory = self.root.parent / "inventory.ini"
        found = ansible_support.play(
            self.playbook, self.root.parent, "-i", inventory, "-e", f"@{given}", *arguments, "site.yaml"
        )
        assert found.returncode == 0, found.stdout + found.stderr
        recap = found.stdout.rpartition("PLAY RECAP")[2]
        return {host: int(changed) for host, changed in re.findall(r"^(\S+)\s.*changed=(\d+)", recap, re.M)}

    def said(self, service: str) -> str:
        """The end of what a service printed and logged."""
        files = [self.root.parent / f"{service}.out", *self.root.glob("var/log/*/*.log")]
        return "\n".join(f"{file.name}: {file.read_text('utf-8', 'replace')[-3000:]}" for file in files)

    def unit(self, service: str) -> Path:
        """What systemd knows of it."""
        return self.root / f"etc/systemd/system/{service}.service"

    def is_done_once(self, service: str) -> bool:
        """Whether it ends, and what comes after it waits for that."""
        return "Type=oneshot" in self.unit(service).read_text("utf-8")

    def start(self, service: str) -> subprocess.Popen[bytes]:
        """What the unit of that name starts."""
        log = (self.root.parent / f"{service}.out").open("wb")
        command, directory = ansible_support.command_of(self.unit(service))
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=directory)


@pytest.fixture
def site(tmp_path: Path, playbook: Path) -> Iterator[Site]:
    """A machine that is broker and load machine at once."""
    names = ("kafka_port", "kafka_controller_port", "zookeeper_port", "pulsar_port", "pulsar_web_port",
             "pulsar_bookie_port", "pulsar_bookie_http_port", "worker_port", "agent_port", "rabbitmq_port", "rabbitmq_epmd_port",
             "rabbitmq_between_port")  # fmt: skip
    # Roles go through for a minute and more before the first server starts.
    with held_ports(len(names)) as ports:
        yield _site(tmp_path, playbook, dict(zip(names, ports, strict=True)))


def _site(tmp_path: Path, playbook: Path, ports: dict[str, int]) -> Site:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (tmp_path / "inventory.ini").write_text(f"[brokers]\n{HOST}\n[load]\none\n", "utf-8")
    java = shutil.which("java", path=f"{_java_home()}/bin") or "java"
    variables = {
        **ports,
        "streamgauge_root": str(root),
        "lab_directory": str(tmp_path),
        "gauge": str(find_gauge()),
        "java": java,
        "broker_disks": [
            {"device": "none-1", "mount": "/mnt/data-1", "roles": ["log", "journal"]},
            {"device": "none-2", "mount": "/mnt/data-2", "roles": ["log", "ledgers"]},
        ],
    }
    return Site(root, playbook, ports, variables)


def _java_home() -> str:
    return os.environ.get("JAVA_HOME", "/usr")


@pytest.mark.parametrize(
    ("study", "paths"),
    [
        ("streamnative-2020", ["/mnt/data-2/ledgers/0", "/mnt/data-2/ledgers/1"]),
        ("streamnative-2020-bypass", [f"/mnt/data-{disk}/ledgers/{at}" for disk in (1, 2) for at in (0, 1)]),
    ],
)
def test_ledgers_are_on_all_of_their_disks(
    playbook: Path, tmp_path: Path, study: str, paths: list[str]
) -> None:
    role = ANSIBLE / "roles" / "pulsar"
    files = [role / "defaults/main.yaml", role / "vars/main.yaml", ANSIBLE / "studies" / f"{study}.yaml"]
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(file) for file in files],
        "vars": {"machine_disks": "{{ broker_disks }}", "told": paths},
        "tasks": [{"ansible.builtin.assert": {"that": ["pulsar_ledger_paths == told"]}}],
    }
    (tmp_path / "paths.json").write_text(json.dumps([play]), "utf-8")
    found = ansible_support.play(playbook, tmp_path, str(tmp_path / "paths.json"))
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("name", ["site.yaml", "reconfigure.yaml"])
def test_a_playbook_is_read(playbook: Path, tmp_path: Path, name: str) -> None:
    arguments = ["-i", "inventory.example.ini", "--syntax-check", name]
    found = ansible_support.play(playbook, tmp_path, *arguments)
    assert found.returncode == 0, found.stdout + found.stderr


def put_there_once(site: Site) -> None:
    """The first application changes the machine, the second one nothing."""
    assert site.apply()["one"] > 0
    assert site.apply() == {"localhost": 0, "one": 0}


def serves(directory: Path, **system: Any) -> None:
    """A short trial over the network of a system as a system file has it, with its books balanced."""
    (directory / "system.json").write_text(json.dumps(system), encoding="utf-8")
    arguments = ["--system", "system.json", "--rate", "200", "--warmup", "1s", "--duration", "2s"]
    process = lab(find_gauge(), directory, "run", "1-topic-16-partitions-1kb", *arguments)
    try:
        told, errors = process.communicate(timeout=RUN_S)
    finally:
        process.kill()
    assert process.returncode in (0, 1), told + errors
    audit = result(directory)["audit"]
    assert (audit["lost"], audit["duplicated"]) == (0, 0), told
    assert audit["received"] >= 200, told


@contextlib.contextmanager
def started(site: Site, *services: tuple[str, Callable[[], bool]]) -> Iterator[None]:
    """The services in their order, each until it answers, or has done what it is there for once; they are gone in the end."""
    running: list[tuple[str, subprocess.Popen[bytes]]] = []
    try:
        for service, answers in services:
            process = site.start(service)
            running.append((service, process))
            until = time.monotonic() + UP_S
            if site.is_done_once(service):
                assert process.wait(UP_S) == 0, site.said(service)
            while not answers():
                assert process.poll() in (None, 0), site.said(service)
                assert time.monotonic() < until, site.said(service)
                time.sleep(0.2)
        yield
    finally:
        for _, process in reversed(running):
            process.terminate()
        for _, process in reversed(running):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def listens(port: int, host: str = "127.0.0.1") -> Callable[[], bool]:
    """Whether somebody takes connections there."""

    def asked() -> bool:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
        except OSError:
            return False
        return True

    return asked


def with_broker_apart(site: Site) -> Site:
    """The machine to which Pulsar's broker has moved: another root, another address."""
    one, two = site.root, site.root.with_name("apart")
    (two / "etc").mkdir(parents=True)
    inventory = site.root.parent / "inventory.ini"
    host = f"two {HOST.partition(' ')[2]}".replace("inside=127.0.0.1", f"inside={APART}")
    lines = [f"[pulsar_brokers]\n{host} own_root={two}\n", f"[brokers:vars]\nown_root={one}\n"]
    inventory.write_text(inventory.read_text("utf-8") + "".join(lines), "utf-8")
    # No default stands behind it: a host without a root of its own ends the play before it touches this machine.
    site.variables["streamgauge_root"] = "{{ own_root }}"
    site.apply()
    return replace(site, root=two)


def pulsar_serves(directory: Path, host: str, port: int, deployment: str) -> None:
    """A trial on the cluster that the playbook says how to reach; it is deployed like this, which is read back, and its bookie is asked."""
    left = YAML(typ="safe").load(directory / "pulsar.yaml")
    assert left["connect"] == [f"{host}:{port}"]
    serves(directory, **left, durability="L3", deployment=deployment, client={"namespace": "public/default"})
    durability = result(directory)["durability"]
    assert (durability["declared"], durability["mismatches"]) == ("L3", [])
    assert durability["settings"]["deployment"] == deployment


@pytest.mark.jvm
# Ansible goes through all roles twice: a minute of CPU, and several minutes beside other tests on a slow machine.
@pytest.mark.timeout(900)
def test_kafka_is_put_there_once_and_serves(site: Site, tmp_path: Path) -> None:
    system = Kafka()
    system.install(None, lambda _line: None)
    jars = system.installed()
    assert jars is not None
    packed = ansible_support.archive({"libs": Path(jars)}, "kafka", tmp_path)
    site.variables.update(
        systems=["kafka"], kafka_url=packed["url"], kafka_checksum=packed["checksum"],
        kafka_version=system.default_version, kafka_heap="256m",
    )  # fmt: skip
    put_there_once(site)
    port = site.ports["kafka_port"]
    with started(site, ("kafka", listens(port))):
        serves(tmp_path, system="kafka", connect=[f"127.0.0.1:{port}"])
    for disk in ("data-1", "data-2"):
        assert (site.root / "mnt" / disk / "kafka" / "meta.properties").exists()
    read = [path for path in site.root.glob("mnt/*/kafka/*") if path.is_dir()]
    assert {path.parent.parent.name for path in read} == {"data-1", "data-2"}


def test_disks_are_formatted_once_and_mounted(playbook: Path, tmp_path: Path) -> None:
    """In a mount namespace, with two files as disks: the second run finds file systems and mounts, and leaves both as they are."""
    devices = []
    try:
        for name in ("one", "two"):
            (tmp_path / name).write_bytes(b"")
            os.truncate(tmp_path / name, 16 << 20)
            command = ["losetup", "--find", "--show", str(tmp_path / name)]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            if found.returncode != 0:
                pytest.skip(f"no loop devices: {found.stderr.strip()}")
            devices.append(found.stdout.strip())
        root = tmp_path / "root"
        (root / "etc").mkdir(parents=True)
        disks = [
            {"device": device, "mount": f"/mnt/data-{at}", "roles": ["log"]}
            for at, device in enumerate(devices, start=1)
        ]
        variables = {
            "streamgauge_root": str(root), "broker_disks": disks, "machine_disks_are_made": True,
            "machine_file_system": "ext4", "machine_mount_options": "defaults,noatime",
        }  # fmt: skip
        (tmp_path / "variables.json").write_text(json.dumps(variables), "utf-8")
        play = [{"hosts": "brokers", "gather_facts": False, "roles": [str(ANSIBLE / "roles" / "machine")]}]
        (tmp_path / "play.yaml").write_text(json.dumps(play), "utf-8")
        (tmp_path / "inventory.ini").write_text(f"[brokers]\n{HOST}\n[brokers:vars]\n", "utf-8")
        (tmp_path / "group_vars").symlink_to(ANSIBLE / "group_vars")
        twice = '"$0" "$@" && "$0" "$@" && findmnt --raw --noheadings --output TARGET,FSTYPE,OPTIONS'
        found = ansible_support.play(
            playbook, tmp_path, "-i", tmp_path / "inventory.ini", "-e", f"@{tmp_path / 'variables.json'}",
            tmp_path / "play.yaml", within=["unshare", "--mount", "sh", "-c", twice],
        )  # fmt: skip
        assert found.returncode == 0, found.stdout + found.stderr
        changed = [int(count) for count in re.findall(r"changed=(\d+)", found.stdout)]
        assert changed[0] > 0, found.stdout
        assert changed[1] == 0, found.stdout
        for disk in disks:
            assert re.search(rf"^{root}{disk['mount']} ext4 \S*noatime", found.stdout, re.M), found.stdout
        assert (root / "etc" / "fstab").read_text("utf-8").count("ext4 defaults,noatime,nofail") == 2
    finally:
        for device in devices:
            subprocess.run(["losetup", "--detach", device], check=False)


def test_each_study_has_disks_for_every_role_of_its_systems() -> None:
    for study in STUDIES:
        told = YAML(typ="safe").load(study)
        roles = {role for disk in told["broker_disks"] for role in disk["roles"]}
        assert roles == {"log", "journal", "ledgers"}
        assert set(told["systems"]) <= {path.name for path in (ANSIBLE / "roles").iterdir()}


@pytest.mark.jvm
def test_pulsar_and_rabbitmq_are_put_there_once_and_serve(site: Site, tmp_path: Path) -> None:
    system = Pulsar()
    system.install(None, lambda _line: None)
    files = system.installed()
    assert files is not None
    packed = ansible_support.archive(
        {part: Path(files) / part for part in ("conf", "lib")}, "pulsar", tmp_path
    )
    site.variables.update(
        systems=["rabbitmq", "pulsar"], running="pulsar", pulsar_url=packed["url"], pulsar_checksum=packed["checksum"],
        pulsar_heap="256m", pulsar_direct="256m", rabbitmq_cookie="0123456789abcdef0123", rabbitmq_password="not told",
    )  # fmt: skip
    with (tmp_path / "inventory.ini").open("a", encoding="utf-8") as inventory:
        inventory.write("[zookeeper]\none\n")
    put_there_once(site)
    ports = site.ports
    with started(
        site,
        ("zookeeper", listens(ports["zookeeper_port"])),
        ("pulsar-metadata", lambda: True),
        ("bookkeeper", listens(ports["pulsar_bookie_port"])),
    ):
        with started(site, ("pulsar-broker", listens(ports["pulsar_web_port"]))):
            pulsar_serves(tmp_path, "127.0.0.1", ports["pulsar_port"], "co-located")
        apart = with_broker_apart(site)
        assert apart.unit("pulsar-broker").exists()
        assert not apart.unit("bookkeeper").exists()
        assert not site.unit("pulsar-broker").exists(), "it is on the other machine now"
        with started(apart, ("pulsar-broker", listens(ports["pulsar_web_port"], APART))):
            pulsar_serves(tmp_path, APART, ports["pulsar_port"], "tiered")
    assert list(site.root.glob("mnt/data-1/journal/0/current/*.txn"))
    assert list(site.root.glob("mnt/data-2/ledgers/0/current/*"))


def test_each_study_of_ansible_has_machines_in_terraform_and_the_other_way_round() -> None:
    text = (ANSIBLE.parent / "terraform" / "studies" / "main.tf").read_text("utf-8")
    machines = set(re.findall(r'^ +"([a-z]+-\d{4})" += \{ brokers', text, re.M))
    assert machines == {YAML(typ="safe").load(study)["study"] for study in STUDIES}
