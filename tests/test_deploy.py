"""The examples below deploy/: as far as they can be looked at without machines."""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
from lab_support import ROOT
from ruamel.yaml import YAML
from streamgauge.fleet.hosts import read_hosts
from streamgauge.model.checked_study import read_study
from streamgauge.model.hooks_file import read_hooks
from streamgauge.model.scaling import Machine
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.model.system_file import SystemOverrides, choose_systems
from streamgauge.model.trust import Trust
from streamgauge.runner.hooks import variables
from streamgauge.systems.pulsar.settings import JOURNALS
from streamgauge.systems.pulsar.system import Pulsar
from streamgauge.systems.registry import systems

ANSIBLE = ROOT / "deploy" / "ansible"
FINGERPRINT = ":".join(["AB"] * 32)


def inventory() -> dict[str, dict[str, Any]]:
    """The example's hosts with their variables, and `groups`."""
    parser = configparser.ConfigParser(allow_no_value=True, delimiters=("\n",))
    parser.read(ANSIBLE / "inventory.example.ini")
    groups: dict[str, list[str]] = {}
    hosts: dict[str, dict[str, Any]] = {}
    for group in ("brokers", "zookeeper", "load"):
        groups[group] = []
        for line in parser[group]:
            name, *pairs = line.split()
            groups[group].append(name)
            hosts[name] = dict(pair.split("=", 1) for pair in pairs)
            hosts[name]["fingerprint"] = {"stdout": f"sha256 Fingerprint={FINGERPRINT}"}
    return {"groups": groups, "hosts": hosts}


def rendered(template: Path, **variables: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        autoescape=False,
    )
    environment.filters["extract"] = lambda item, container, key: container[item][key]
    environment.filters["regex_replace"] = lambda text, _pattern, added: text + added
    found = inventory()
    told = {
        "groups": found["groups"],
        "hostvars": found["hosts"],
        "streamgauge_root": "",
        "pulsar_serving": found["groups"]["brokers"],
        **variables,
    }
    return environment.get_template(template.name).render(told)


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def tasks_of(role: Path) -> list[dict[str, Any]]:
    return [task for path in sorted((role / "tasks").glob("*.yaml")) for task in read(path)]


@pytest.mark.parametrize("role", sorted((ANSIBLE / "roles").iterdir()), ids=lambda role: role.name)
def test_every_template_and_handler_of_a_role_is_there(role: Path) -> None:
    handlers = role / "handlers" / "main.yaml"
    known = {handler["name"] for handler in read(handlers)} if handlers.exists() else set()
    used = set()
    for task in tasks_of(role):
        if notified := task.get("notify"):
            assert any(re.fullmatch(re.sub(r"{{.*?}}", ".*", notified), name) for name in known), notified
        if template := task.get("ansible.builtin.template"):
            pattern = re.sub(r"{{.*?}}", "*", template["src"])
            found = {path.name for path in (role / "templates").glob(pattern)}
            assert found, template["src"]
            used |= found
    templates = {path.name for path in (role / "templates").glob("*")}
    assert used == templates


def test_what_the_roles_copy_from_elsewhere_is_there() -> None:
    for program in ("worker", "agent"):
        assert (ROOT / "deploy" / "systemd" / f"streamgauge-{program}.service").is_file()
    named = (ANSIBLE / "roles" / "load" / "tasks" / "main.yaml").read_text("utf-8")
    assert "../systemd/streamgauge-{{ load_program }}.service" in named


def test_nothing_is_unpacked_that_was_not_checked() -> None:
    """What is unpacked is the file that was fetched with a checksum, and each system has one in its role."""
    tasks = tasks_of(ANSIBLE / "roles" / "archive")
    (get,) = [task["ansible.builtin.get_url"] for task in tasks if "ansible.builtin.get_url" in task]
    (unpacked,) = [task["ansible.builtin.unarchive"] for task in tasks if "ansible.builtin.unarchive" in task]
    assert get["checksum"] == "{{ archive_checksum }}"
    assert unpacked["src"] == get["dest"]
    kafka = read(ANSIBLE / "roles" / "kafka" / "defaults" / "main.yaml")
    assert re.fullmatch(r"[0-9a-f]{128}", kafka["kafka_sha512"])
    pulsar = read(ANSIBLE / "roles" / "pulsar" / "defaults" / "main.yaml")
    checked = (ROOT / "python/streamgauge/systems/support/checksums/archives.sha256").read_text().split()
    assert checked == [
        pulsar["pulsar_sha256"],
        f"pulsar-server-distribution-{pulsar['pulsar_version']}-bin.tar.gz",
    ]
    for role in (ANSIBLE / "roles").iterdir():
        if role.name != "archive":
            assert all("ansible.builtin.unarchive" not in task for task in tasks_of(role))


def test_bookies_begin_as_the_lab_starts_them() -> None:
    pulsar = read(ANSIBLE / "roles" / "pulsar" / "defaults" / "main.yaml")
    assert pulsar["pulsar_bookie"] == JOURNALS["sync"]


def test_what_the_playbook_leaves_is_kept_out_of_git_and_of_images() -> None:
    """The token lets whoever has it start load on every worker."""
    left = [
        "deploy/ansible/token",
        "deploy/ansible/hosts.yaml",
        "deploy/ansible/pulsar.yaml",
        "deploy/ansible/inventory.ini",
    ]
    left += ["identity/token", "secrets/password", "deploy/terraform/terraform.tfstate"]
    done = subprocess.run(
        ["git", "check-ignore", *left], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == left
    ignored = (ROOT / ".containerignore").read_text().split()
    for name in left:
        assert any(fnmatch.fnmatch(name, pattern) or name.startswith(f"{pattern}/") for pattern in ignored), (
            name
        )


def test_the_hosts_file_that_it_writes_is_one_for_the_lab(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x" * 32)
    (tmp_path / "token").chmod(0o600)
    item, ports = {"group": "load", "port": 7400}, {"kafka": 9092}
    text = rendered(ANSIBLE / "templates" / "hosts.yaml.j2", item=item, running="kafka", ports=ports)
    (tmp_path / "hosts.yaml").write_text(text)
    hosts = read_hosts(tmp_path / "hosts.yaml")
    assert [host.name for host in hosts.hosts] == ["load-1", "load-2", "load-3", "load-4"]
    assert hosts.hosts[0].address == "10.0.0.21:7400"
    assert hosts.hosts[0].fingerprint == "sha256:" + "ab" * 32
    assert "--connect 10.0.0.11:9092,10.0.0.12:9092,10.0.0.13:9092" in text


def test_the_system_file_that_it_writes_has_bookies_asked_for_their_journals(tmp_path: Path) -> None:
    (tmp_path / "pulsar.yaml").write_text(rendered(ANSIBLE / "templates" / "pulsar.yaml.j2"))
    [choice] = choose_systems(str(tmp_path / "pulsar.yaml"), SystemOverrides(), systems())
    assert choice.request.connect == ("10.0.0.11:6650", "10.0.0.12:6650", "10.0.0.13:6650")
    assert choice.request.options["bookies"] == ["10.0.0.11:8000", "10.0.0.12:8000", "10.0.0.13:8000"]
    Pulsar().check(replace(choice.request, level="L1"))


def brokers_settings(**told: Any) -> dict[str, str]:
    role = ANSIBLE / "roles" / "kafka"
    given = {
        key: value for key, value in read(role / "defaults" / "main.yaml").items() if "{{" not in str(value)
    }
    disks = {"kafka_disks": ["/mnt/a", "/mnt/b"], "kafka_copies": 3, "kafka_copies_in_sync": 2}
    text = rendered(
        role / "templates" / "server.properties.j2", **(given | disks | told), node="2", inside="10.0.0.12"
    )
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def test_a_brokers_settings_name_all_of_them() -> None:
    settings = brokers_settings()
    assert settings["controller.quorum.voters"] == "1@10.0.0.11:9093,2@10.0.0.12:9093,3@10.0.0.13:9093"
    assert settings["log.dirs"] == "/mnt/a/kafka,/mnt/b/kafka"
    assert settings["advertised.listeners"] == "PLAINTEXT://10.0.0.12:9092"


def test_a_broker_of_the_studies_time_has_zookeeper_in_place_of_controllers() -> None:
    settings = brokers_settings(kafka_mode="zookeeper")
    assert settings["zookeeper.connect"] == "10.0.0.31:2181,10.0.0.32:2181,10.0.0.33:2181/kafka"
    assert settings["broker.id"] == "2"
    assert settings["log.dirs"] == "/mnt/a/kafka,/mnt/b/kafka"
    assert not any("controller" in key or key.startswith("process") for key in settings)


def test_the_hooks_go_through_all_variants_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ansible-playbook"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    file = ANSIBLE / "hooks.yaml"
    study = read_study("streamnative-2020", systems())
    hooks = read_hooks(file, study, Trust((file.resolve(),)))
    connect = {"pulsar": ("10.0.0.11:6650",), "kafka": ("10.0.0.11:9092",)}
    wishes = Wishes(scale="full", seed=1, repeats=1, connect=connect, hooks=hooks)
    plan = plan_study(study, wishes, Machine(8, 64 << 30, 300.0))
    (play,) = YAML(typ="safe").load(ANSIBLE / "reconfigure.yaml")
    told = play["vars"]
    assert told["journals"] == JOURNALS
    journal = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False).from_string(
        told["journal"]
    )
    found = {}
    for trial in plan.trials:
        cell = plan.cell(trial.cell)
        given = variables("reconfigure", plan, trial, cell)
        assert given["STREAMGAUGE_KIND"] in told["services"]
        level, options = given["STREAMGAUGE_LEVEL"], json.loads(given["STREAMGAUGE_OPTIONS"])
        found[cell.system] = journal.render(level=level, options=options)
    assert found | {"kafka-l1": "", "kafka-l2": "", "kafka-l3": "", "kafka-l4": ""} == {
        "pulsar-l1": "sync", "pulsar-l2": "async_journal", "pulsar-l3": "sync", "pulsar-l4": "async_journal",
        "pulsar-bypass": "async_bypass", "pulsar-bypass-1ack": "async_bypass", "kafka-l1": "", "kafka-l2": "", "kafka-l3": "", "kafka-l4": "",
    }  # fmt: skip
    # Every hook of the file is one that the playbook does something for.
    text = (ANSIBLE / "reconfigure.yaml").read_text("utf-8")
    assert all(
        f"'{name}'" in text and hook.run[-1] == "reconfigure.yaml" for name, hook in hooks.hooks.items()
    )
