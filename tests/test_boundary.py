"""What a file may do without being trusted, and `--trust-file` (docs/security.md, "What a file may do")."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab_support import lab
from streamgauge.model.checked_study import experiment_study_names, read_study, study_names
from streamgauge.model.document import parse_document
from streamgauge.model.durability_study import read_durability_study
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload
from streamgauge.model.study_trust import refuse_untrusted_study
from streamgauge.model.system_file import SystemOverrides, choose_systems
from streamgauge.model.system_request import SystemRequest
from streamgauge.model.trust import Trust
from streamgauge.systems import standalone
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError, SystemInputError

CODE = [
    "-javaagent:/tmp/x.jar",
    "-agentpath:/tmp/x.so",
    "-agentlib:jdwp=transport=dt_socket,server=y,address=*:5005",
    "-XX:OnOutOfMemoryError=touch /tmp/x",
    "-XX:OnError=touch /tmp/x",
    "-XX:VMOptionsFile=/tmp/x",
    "-XX:Flags=/tmp/x",
    "-XX:ErrorFile=/tmp/x",
    "-XX:HeapDumpPath=/tmp/x",
    "-XX:LogFile=/tmp/x",
    "-XX:CompileCommandFile=/tmp/x",
    "-XX:SharedArchiveFile=/tmp/x",
    "-XX:+FlightRecorder",
    "-XX:StartFlightRecording=filename=/tmp/x",
    "-XX:ConcGCThreads=/tmp/x",
    "-Xlog:gc:file=/tmp/x",
    "-Xlog:gc:file=logs/../../x",
    "-Xlog:gc:file=logs/../x",
    "-Xlog:gc:/tmp/x",
    '-Xlog:gc:file="/tmp/x"',
    "-Xloggc:/tmp/x",
    "-Xbootclasspath/a:/tmp/x.jar",
    "-Xshare:dump",
    "-Xdebug",
    "-Xrunjdwp:server=y",
    "-Djava.security.auth.login.config=/tmp/x",
    "-Dcom.sun.management.jmxremote.port=9",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--patch-module=java.base=/tmp/x",
    "--enable-native-access=ALL-UNNAMED",
    "-XX:+UseG1GC\n-javaagent:/tmp/x.jar",
]
HARMLESS = [
    "-XX:+UseZGC",
    "-XX:-UseG1GC",
    "-XX:+ZGenerational",
    "-XX:MaxGCPauseMillis=10",
    "-XX:G1HeapRegionSize=4m",
    "-XX:ShenandoahGCHeuristics=compact",
    "-XX:MaxRAMPercentage=50.0",
    "-Xss512k",
    "-Xmn256m",
    "-XX:+AlwaysPreTouch",
    "-XX:+UnlockExperimentalVMOptions",
    "-Xlog:gc*,safepoint=debug:file=logs/more.log:time,uptime:filecount=2,filesize=1m",
    "-Xlog:gc+heap=trace",
]
SETTINGS: list[tuple[str, str, str, Any]] = [
    ("kafka", "broker", "metric.reporters", "org.example.Reporter"),
    ("kafka", "broker", "plugin.path", "/tmp/x"),
    ("kafka", "broker", "authorizer.class.name", "x"),
    ("kafka", "broker", "sasl.jaas.config", "com.sun.security.auth.module.JndiLoginModule required;"),
    ("kafka", "broker", "principal.builder.class", "x"),
    ("kafka", "broker", "remote.log.storage.manager.class.path", "/tmp/x"),
    ("kafka", "broker", "config.providers", "file"),
    ("kafka", "broker", "compression.type", "${file:/etc/passwd:x}"),
    ("kafka", "broker", "num.io.threads", "${env:HOME}"),
    ("kafka", "broker", "ssl.truststore.location", "/tmp/x"),
    ("kafka", "broker", "metric.reporters", [1, "org.example.Reporter"]),
    ("pulsar", "broker", "loadManagerClassName", "x"),
    ("pulsar", "broker", "managedLedgerStorageClassName", "x"),
    ("pulsar", "broker", "narExtractionDirectory", "/tmp/x"),
    ("pulsar", "broker", "functionsWorkerEnabled", True),
    ("pulsar", "broker", "webSocketServiceEnabled", True),
    ("pulsar", "broker", "authenticationEnabled", False),
    ("pulsar", "broker", "brokerInterceptors", "x"),
    ("pulsar", "broker", "protocolHandlerDirectory", "/tmp/x"),
    ("pulsar", "broker", "additionalServlets", "x"),
    ("pulsar", "bookie", "ledgerStorageClass", "x"),
    ("pulsar", "bookie", "extraServerComponents", "x"),
    ("pulsar", "bookie", "listeningInterface", "eth0"),
    ("pulsar", "bookie", "dbStorage_rocksDB_logPath", "/tmp/x"),
    ("pulsar", "bookie", "httpServerClass", "x"),
    ("rabbitmq", "config", "log.file", "/tmp/x"),
    ("rabbitmq", "config", "load_definitions", "/tmp/x"),
    ("rabbitmq", "config", "auth_backends.1", "http"),
    ("rabbitmq", "config", "management.tcp.port", 15672),
    ("rabbitmq", "config", "raft.data_dir", "/tmp/x"),
    ("rabbitmq", "config", "default_pass", "x"),
    ("rabbitmq", "config", "ssl_options.certfile", "/tmp/x"),
    ("rabbitmq", "config", "cluster_formation.peer_discovery_backend", "dns"),
]
NOT_ASKED: list[tuple[str, str, str, Any]] = [
    ("kafka", "broker", "num.io.threads", 8),
    ("kafka", "broker", "unclean.leader.election.enable", True),
    ("kafka", "broker", "compression.type", "zstd"),
    ("kafka", "broker", "ssl.cipher.suites", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"]),
    ("kafka", "broker", "ssl.enabled.protocols", "TLSv1.2,TLSv1.3"),
    ("pulsar", "broker", "managedLedgerMaxEntriesPerLedger", 100000),
    ("pulsar", "broker", "dispatcherMaxReadBatchSize", 100),
    ("pulsar", "bookie", "journalBufferedWritesThreshold", 1048576),
    ("pulsar", "bookie", "dbStorage_writeCacheMaxSizeMb", 64),
    ("rabbitmq", "config", "vm_memory_high_watermark_paging_ratio", 0.75),
    ("rabbitmq", "config", "disk_free_limit.absolute", "1GB"),
    ("rabbitmq", "config", "tcp_listen_options.nodelay", True),
    ("rabbitmq", "config", "cluster_partition_handling", "pause_minority"),
]


def system_file(directory: Path, system: str, key: str, value: Any) -> Path:
    path = directory / "theirs.yaml"
    path.write_text(f"system: {system}\n# Two lines,\n# so that the third is not the first.\n")
    with path.open("a") as file:
        file.write(f"{key}: {json.dumps(value)}\n")
    return path


def chosen(path: Path, *trusted: Path) -> SystemRequest:
    overrides = SystemOverrides(trust=Trust.parse([str(one) for one in trusted]))
    return choose_systems(str(path), overrides, systems())[0].request


def refused(path: Path, *trusted: Path) -> str:
    with pytest.raises(InputError) as failure:
        chosen(path, *trusted)
    return str(failure.value)


@pytest.mark.parametrize("system", ["kafka", "pulsar"])
@pytest.mark.parametrize("flag", CODE)
def test_flags_that_can_run_code_are_for_trusted_files(tmp_path: Path, system: str, flag: str) -> None:
    path = system_file(tmp_path, system, "jvm_flags", ["-XX:+UseG1GC", flag])
    told = refused(path)
    assert told.startswith(f"{path}:4: jvm_flags[1]: '{flag}' is none of the JVM's flags for collectors")
    assert f"add --trust-file {path}" in told
    assert flag in chosen(path, path).options["jvm_flags"]
    # What skips the file's own check meets the system's.
    with pytest.raises(SystemInputError, match="add --trust-file FILE"):
        systems()[system].check(SystemRequest(options={"jvm_flags": [flag]}))


@pytest.mark.parametrize(
    "flag", ["-cp", "--class-path=/tmp/x", "-jar", "--module=x", "-m", "@/tmp/arguments"]
)
def test_what_runs_another_program_is_refused_even_so(tmp_path: Path, flag: str) -> None:
    path = system_file(tmp_path, "kafka", "jvm_flags", [flag])
    told = refused(path, path)
    assert "changes what is run" in told or "is no JVM flag" in told


@pytest.mark.parametrize("flag", HARMLESS)
def test_collectors_memory_and_logs_need_no_trust(flag: str) -> None:
    assert not list(Kafka().untrusted(SystemRequest(options={"jvm_flags": [flag]})))


@pytest.mark.parametrize(("system", "key", "name", "value"), SETTINGS)
def test_settings_that_can_name_code_or_files_are_for_trusted_files(
    tmp_path: Path, system: str, key: str, name: str, value: Any
) -> None:
    path = system_file(tmp_path, system, key, {name: value})
    told = refused(path)
    assert told.startswith(f"{path}:4: {key}.{name}: '{name}' is no setting that takes only numbers or words")
    assert f"add --trust-file {path}" in told
    assert chosen(path, path).trusted
    # Trust in another file is none in this one.
    other = tmp_path / "other.yaml"
    other.write_text("system: kafka\n")
    assert name in refused(path, other)


@pytest.mark.parametrize(("system", "key", "name", "value"), NOT_ASKED)
def test_numbers_switches_and_known_words_need_no_trust(
    tmp_path: Path, system: str, key: str, name: str, value: Any
) -> None:
    path = system_file(tmp_path, system, key, {name: value})
    assert not chosen(path).trusted


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"heartbeat": "5\nlisteners.tcp.2 = 0.0.0.0:1"},
            "expected the name of a setting and a value of one line",
        ),
        ({"heartbeat = 5\nx": 1}, "expected the name of a setting"),
        ({"listeners.tcp.2": "0.0.0.0:5672"}, "the lab binds the nodes to loopback itself"),
        ({"stream.listeners.tcp.2": "0.0.0.0:5552"}, "the lab binds the nodes to loopback itself"),
    ],
)
def test_rabbitmq_s_file_gets_whole_lines_and_no_listeners(config: dict[str, Any], expected: str) -> None:
    with pytest.raises(SystemInputError, match=expected):
        systems()["rabbitmq"].check(SystemRequest(options={"config": config}, trusted=True))


def test_a_file_to_trust_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; expected the file whose options you trust"):
        Trust.parse([str(tmp_path / "none.yaml")])


@pytest.mark.parametrize("name", study_names())
def test_studies_that_ship_need_no_trust(name: str) -> None:
    refuse_untrusted_study(read_study(name, systems()), Trust(), systems())


@pytest.mark.parametrize("name", experiment_study_names())
def test_experiments_that_ship_need_no_trust(name: str) -> None:
    study = read_durability_study(name, systems())
    assert study is not None
    assert not study.trusted


# ---------------------------------------------------------------------- secrets and payloads from elsewhere


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        ("password_env: HOME", "'HOME' is a variable of your environment"),
        ("password_file: ../secret", "../secret is not below"),
        ("password_file: link", "link is not below"),
        ("password_file: .ssh/id", "or hidden"),
    ],
)
def test_secrets_of_one_s_own_go_only_where_a_trusted_file_says(
    tmp_path: Path, auth: str, expected: str
) -> None:
    below = tmp_path / "below"
    (below / ".ssh").mkdir(parents=True)
    for secret in (tmp_path / "secret", below / ".ssh" / "id"):
        secret.touch(mode=0o600)
        secret.write_text("of my own")
    (below / "link").symlink_to(tmp_path / "secret")
    path = below / "theirs.yaml"
    path.write_text(
        "system: kafka\nconnect: evil.example.org:9092\nsecurity:\n"
        f"  auth: {{mechanism: plain, username: u, {auth}}}\n"
    )
    told = refused(path)
    assert told.startswith(f"{path}:4: security.auth.password_")
    assert expected in told
    assert f"add --trust-file {path}" in told
    assert "of my own" not in told
    assert chosen(path, path).security is not None


@pytest.mark.parametrize("payload", ["/etc/hostname", "../secret", "link", ".hidden"])
def test_a_workload_sends_files_of_its_own_directory_alone(tmp_path: Path, payload: str) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    for file in (tmp_path / "a" / "secret", tmp_path / "a" / "b" / "secret", deep / ".hidden"):
        file.write_text("x" * 100)
    (deep / "link").symlink_to(tmp_path / "a" / "secret")
    path = deep / "w.yaml"
    path.write_text(f"messageSize: 100\npayloadFile: {payload}\n")
    with pytest.raises(InputError) as failure:
        read_workload(str(path))
    assert f"{path}:2: payloadFile: " in str(failure.value)
    assert f"add --trust-file {path}" in str(failure.value)
    if payload != "/etc/hostname":
        trusted = Overrides(trust=Trust.parse([str(path)]))
        assert read_workload(str(path), trusted).payload_file is not None


# ---------------------------------------------------------------------- studies, and runs that are resumed

STUDY = """
study: theirs
title: A study of theirs
source: {publisher: them, published: "2026"}
systems:
  k: {system: kafka, title: Kafka, level: L4, nodes: 1, options: {jvm_flags: ["-XX:+UseG1GC"]}}
workload: {messageSize: 100, rate: 2000}
cells:
  - {cell: one, system: k}
scales:
  laptop: {warmup: 1s, duration: 2s}
  quick: {warmup: 0s, duration: 1s, repeats: 1, restart: block}
"""
EVIL = "-XX:OnOutOfMemoryError=touch /tmp/x"


def said(gauge: Path, directory: Path, *arguments: str) -> tuple[int, str]:
    process = lab(gauge, directory, *arguments, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=200)
    return process.returncode, out


def test_a_study_file_is_code_only_when_it_is_trusted(gauge: Path, tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text(STUDY.replace("-XX:+UseG1GC", EVIL))
    status, out = said(gauge, tmp_path, "study", "theirs.yaml", "--quick", "--plan")
    assert status == 2, out
    assert f"error: theirs.yaml:6: jvm_flags[0]: '{EVIL}' is none of" in out
    assert "add --trust-file theirs.yaml" in out
    status, out = said(
        gauge, tmp_path, "study", "theirs.yaml", "--quick", "--plan", "--trust-file", "./theirs.yaml"
    )
    assert status == 0, out


def resumable(directory: Path, **changes: Any) -> Path:
    """A run of somebody's study, of which nothing is done yet, with other options than its study has."""
    from streamgauge.model.checked_study import parse_study
    from streamgauge.model.scaling import Machine
    from streamgauge.model.study_planning import Wishes, plan_study
    from streamgauge.store.directory import RunDirectory
    from streamgauge.store.plan_file import write_plan

    plan = plan_study(
        parse_study(STUDY, "theirs.yaml", systems()),
        Wishes("quick", 1),
        Machine(2, 8 << 30, None),
    )
    cells = [cell.model_copy(update={"options": changes}) for cell in plan.cells]
    run = RunDirectory.create(directory / "runs", "theirs-quick")
    write_plan(run, plan.model_copy(update={"cells": cells}))
    (run.path / "manifest.json").write_text("{}")
    return run.path


def test_a_run_that_is_resumed_must_be_trusted_itself(gauge: Path, tmp_path: Path) -> None:
    run = resumable(tmp_path, jvm_flags=["-XX:+UseG1GC", EVIL])
    # The study that the run names is harmless, trusted, and not what would be run.
    (tmp_path / "theirs.yaml").write_text(STUDY)
    resumed = ("study", str(run), "--resume", "--plan")
    for trusted in ((), ("--trust-file", "theirs.yaml")):
        status, out = said(gauge, tmp_path, *resumed, *trusted)
        assert status == 2, out
        line = next(
            number
            for number, line in enumerate((run / "study.json").read_text().splitlines(), 1)
            if EVIL in line
        )
        assert f"error: {run}/study.json:{line}: cell 'one': jvm_flags[1]: '{EVIL}'" in out
        assert f"add --trust-file {run}/study.json" in out
    status, out = said(gauge, tmp_path, *resumed, "--trust-file", f"{run}/study.json")
    assert status == 0, out


def test_cells_of_experiments_are_judged_at_their_line() -> None:
    from streamgauge.model.durability_study import resolve

    text = (
        "study: x\ntitle: x\nsource: {publisher: x, published: '2026'}\nexperiments: [dose]\ncells:\n"
        f"  one:\n    system: kafka\n    title: x\n    options:\n      jvm_flags: ['{EVIL}']\n"
    )
    document = parse_document(text, "x.yaml")
    with pytest.raises(InputError, match=r"^x.yaml:10: jvm_flags\[0\]: "):
        resolve(document, systems())
    assert resolve(document, systems(), trusted=True).choice("one", systems()).request.trusted


@pytest.mark.server
def test_what_a_system_was_started_with_is_its_owner_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(tmp_path / "cache"))
    standalone.up("gauge-log", SystemRequest(), lambda _: None)
    try:
        home = standalone.status("gauge-log").directory
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        for name in ("request.json", "state.json"):
            assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
        assert json.loads((home / "request.json").read_text())["trusted"] is False
    finally:
        standalone.down("gauge-log", lambda _: None)
