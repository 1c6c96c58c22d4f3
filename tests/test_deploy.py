"""The examples below deploy/: as far as they can be looked at without machines."""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import re
import subprocess
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
from streamgauge.model.trust import Trust
from streamgauge.runner.hooks import variables
from streamgauge.systems.pulsar.settings import JOURNALS
from streamgauge.systems.registry import systems

ANSIBLE = ROOT / "deploy" / "ansible"
FINGERPRINT = ":".join(["AB"] * 32)


def inventory() -> dict[str, dict[str, Any]]:
    """The example's hosts with their variables, and `groups`."""
    parser = configparser.ConfigParser(allow_no_value=True, delimiters=("\n",))
    parser.read(ANSIBLE / "inventory.example.ini")
    groups: dict[str, list[str]] = {}
    hosts: dict[str, dict[str, Any]] = {}
    for group in ("brokers", "load"):
        groups[group] = []
        for line in parser[group]:
            name, *pairs = line.split()
            groups[group].append(name)
            hosts[name] = dict(pair.split("=", 1) for pair in pairs)
            hosts[name]["fingerprint"] = {"stdout": f"sha256 Fingerprint={FINGERPRINT}"}
    return {"groups": groups, "hosts": hosts}


def rendered(name: str, **variables: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ANSIBLE / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        autoescape=False,
    )
    environment.filters["extract"] = lambda item, container, key: container[item][key]
    environment.filters["regex_replace"] = lambda text, _pattern, added: text + added
    found = inventory()
    return environment.get_template(name).render(groups=found["groups"], hostvars=found["hosts"], **variables)


def test_every_template_and_file_of_the_playbook_is_there() -> None:
    plays = YAML(typ="safe").load(ANSIBLE / "site.yaml")
    assert [play["hosts"] for play in plays] == ["brokers", "load", "localhost"]
    for play in plays:
        handlers = {handler["name"] for handler in play.get("handlers", [])}
        for task in play["tasks"]:
            assert task.get("notify", next(iter(handlers), None)) in (handlers or {None})
            template = task.get("ansible.builtin.template")
            if template:
                assert (ANSIBLE / "templates" / template["src"]).is_file()
            copied = task.get("ansible.builtin.copy", {}).get("src", "")
            if copied.startswith(".."):
                assert (ANSIBLE / copied).is_file()


def test_nothing_is_unpacked_that_was_not_checked() -> None:
    """An archive that is fetched has a checksum in the playbook, and what is unpacked is that file."""
    plays = YAML(typ="safe").load(ANSIBLE / "site.yaml")
    fetched = set()
    for play in plays:
        for task in play["tasks"]:
            if get := task.get("ansible.builtin.get_url"):
                found = re.fullmatch(r"sha512:\{\{ (\w+) \}\}", get["checksum"])
                assert found is not None
                assert re.fullmatch(r"[0-9a-f]{128}", play["vars"][found.group(1)])
                fetched.add(get["dest"])
            if unpacked := task.get("ansible.builtin.unarchive"):
                assert unpacked["src"] in fetched, f"{task['name']}: {unpacked['src']} was not checked"
    assert fetched


def test_what_the_playbook_leaves_is_kept_out_of_git_and_of_images() -> None:
    """The token lets whoever has it start load on every worker."""
    left = ["deploy/ansible/token", "deploy/ansible/hosts.yaml", "deploy/ansible/inventory.ini"]
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
    text = rendered("hosts.yaml.j2")
    (tmp_path / "hosts.yaml").write_text(text)
    hosts = read_hosts(tmp_path / "hosts.yaml")
    assert [host.name for host in hosts.hosts] == ["load-1", "load-2", "load-3", "load-4"]
    assert hosts.hosts[0].address == "10.0.0.21:7400"
    assert hosts.hosts[0].fingerprint == "sha256:" + "ab" * 32
    assert "--connect 10.0.0.11:9092,10.0.0.12:9092,10.0.0.13:9092" in text


def test_a_brokers_settings_name_all_of_them() -> None:
    text = rendered("server.properties.j2", node="2", inside="10.0.0.12", kafka_data=["/mnt/a", "/mnt/b"])
    settings = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert settings["controller.quorum.voters"] == "1@10.0.0.11:9093,2@10.0.0.12:9093,3@10.0.0.13:9093"
    assert settings["log.dirs"] == "/mnt/a/kafka,/mnt/b/kafka"
    assert settings["advertised.listeners"] == "PLAINTEXT://10.0.0.12:9092"


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
        "pulsar-bypass": "async_bypass", "kafka-l1": "", "kafka-l2": "", "kafka-l3": "", "kafka-l4": "",
    }  # fmt: skip
    # Every hook of the file is one that the playbook does something for.
    text = (ANSIBLE / "reconfigure.yaml").read_text("utf-8")
    assert all(
        f"'{name}'" in text and hook.run[-1] == "reconfigure.yaml" for name, hook in hooks.hooks.items()
    )
