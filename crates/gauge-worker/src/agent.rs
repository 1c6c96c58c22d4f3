//! `gauge agent`: what a broker's machine does, told to a lab that asks once per second (docs/worker-api.md, "The agent").
//!
//! It drives no load, starts no command of its caller's and keeps nothing: answers are totals, and who asks takes differences. The probes that see when a CPU
//! was not to be had are at work only while somebody asks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use gauge_load::clock::{monotonic_ns, shown_ns, unix_ns};
use gauge_load::quiet::Board;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{self, App, Body};
use crate::cli;
use crate::disturbance::DisturbanceOut;
use crate::error::ApiError;
use crate::host::Host;
use crate::probes::{Own, Probes, SAMPLING};
use crate::scheduling;
use crate::server::{self, Language};
use crate::syncs::{Syncs, Total};

/// Names and ports that are looked for at most.
const WATCHED_MAX: usize = 32;
/// How often processes are looked for: broker processes do not come and go.
const FIND_EVERY: Duration = Duration::from_secs(10);
/// The probes end when nobody has asked for so long.
const PROBES_LEASE: Duration = Duration::from_secs(10);
const LEASE_LOOK: Duration = Duration::from_secs(1);
/// A probe of the machine takes no longer for each disk, besides what was asked to be written at no less than the rate below.
const PROBE_WITHIN: Duration = Duration::from_secs(60);
const SLOWEST_BYTES_PER_S: u64 = 20_000_000;
/// For so many seconds a lab may have each disk synced.
const FSYNC_S_MAX: u32 = 600;

/// Tells a lab what this machine and its broker do (docs/causes.md): CPU, run queues, memory, disks, network.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    listening: cli::Listening,
    /// Name of a process that is told (as in /proc/PID/comm); several are allowed. Processes that listen on the broker's ports are told without
    #[arg(long, value_name = "NAME")]
    process: Vec<String>,
    /// A directory on a disk of the broker: the lab may have the machine probed there, for some seconds and 1 GB at most unless --probe-bytes allows more. Several
    /// are allowed, one for each disk
    #[arg(long, value_name = "DIR")]
    probe_dir: Vec<PathBuf>,
    /// How many bytes the lab may have written to each disk in a probe (such as 68719476736, 64 GiB); they are removed afterwards
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    probe_bytes: u64,
}

/// Runs the agent until it is told to end.
pub fn run(args: Args) -> ExitCode {
    let agent = Arc::new(Agent::new(
        args.process.into_iter().collect(),
        args.probe_dir,
        args.probe_bytes,
    ));
    let lease = Arc::clone(&agent);
    let door = cli::Door {
        name: "agent",
        listening: &args.listening,
        is_open: false,
        protocols: Vec::new(),
    };
    door.serve(move |listener, app, access| {
        std::thread::Builder::new()
            .name("lease".to_owned())
            .spawn(move || {
                loop {
                    std::thread::sleep(LEASE_LOOK);
                    lease.end_probes();
                }
            })?;
        let routes = router(Arc::clone(app), agent);
        server::serve_routes(listener, app, access, Language::Own, routes)
    })
}

struct Watching {
    probes: Probes,
    /// None where they cannot be seen.
    syncs: Option<Syncs>,
    told_ns: i64,
    asked: Instant,
}

struct Found {
    ports: BTreeSet<u16>,
    pids: BTreeSet<u32>,
    at: Instant,
}

struct Agent {
    host: Host,
    names: BTreeSet<String>,
    probe_dirs: Vec<PathBuf>,
    probe_bytes: u64,
    found: Mutex<Option<Found>>,
    watching: Mutex<Option<Watching>>,
    probing: tokio::sync::Mutex<()>,
}

impl Agent {
    fn new(names: BTreeSet<String>, probe_dirs: Vec<PathBuf>, probe_bytes: u64) -> Agent {
        Agent {
            host: Host::default(),
            names,
            probe_dirs,
            probe_bytes,
            found: Mutex::new(None),
            watching: Mutex::new(None),
            probing: tokio::sync::Mutex::new(()),
        }
    }

    fn watching(&self) -> MutexGuard<'_, Option<Watching>> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_probes(&self) {
        let mut watching = self.watching();
        if watching
            .as_ref()
            .is_some_and(|one| one.asked.elapsed() > PROBES_LEASE)
        {
            *watching = None;
        }
    }

    /// What was seen since the last question; probes that are not at work begin.
    fn disturbance(&self, ports: &BTreeSet<u16>) -> (Value, Option<DisturbanceOut>) {
        let mut watching = self.watching();
        let now_ns = monotonic_ns();
        let one = watching.get_or_insert_with(|| {
            let cpus = scheduling::cores();
            let board = Arc::new(Board::new(cpus.len(), 1).sampled_every(SAMPLING.period_ns()));
            Watching {
                probes: Probes::start(cpus, board, Own::of(self.names.clone(), ports.clone())),
                syncs: Syncs::begin().ok(),
                told_ns: now_ns,
                asked: Instant::now(),
            }
        });
        one.asked = Instant::now();
        let status = serde_json::to_value(one.probes.status()).unwrap_or_default();
        let mut seen = one.probes.seen().lock();
        let until_ns = seen.settled_ns();
        if until_ns <= one.told_ns {
            return (status, None);
        }
        let told = seen.take(0, one.told_ns, until_ns);
        one.told_ns = until_ns;
        (status, Some(told))
    }

    /// Of all processes, while somebody has the probes at work.
    fn syncs(&self) -> Option<BTreeMap<u32, Total>> {
        let watching = self.watching();
        Some(watching.as_ref()?.syncs.as_ref()?.totals())
    }

    fn pids(&self, ports: BTreeSet<u16>) -> BTreeSet<u32> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = found.as_ref()
            && known.ports == ports
            && known.at.elapsed() < FIND_EVERY
        {
            return known.pids.clone();
        }
        let pids = self.host.find(&self.names, &ports);
        *found = Some(Found {
            ports,
            pids: pids.clone(),
            at: Instant::now(),
        });
        pids
    }
}

fn router(app: Arc<App>, agent: Arc<Agent>) -> Router {
    let own = Router::new()
        .route("/v1/host", get(sample))
        .route("/v1/host/probe", post(probe))
        .with_state(agent);
    let routes = Router::new()
        .route("/v1/info", get(api::info))
        .with_state(app)
        .merge(own)
        .fallback(async || {
            ApiError::not_found("there is no such path: see docs/worker-api.md, \"The agent\"")
        });
    api::guarded(routes)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Ports that a broker listens on, with commas.
    #[serde(default)]
    ports: String,
    /// Whether the probes are to be at work.
    #[serde(default)]
    probes: bool,
}

fn parse_ports(text: &str) -> Result<BTreeSet<u16>, ApiError> {
    let parts: Vec<&str> = text.split(',').filter(|part| !part.is_empty()).collect();
    let wrong = || {
        ApiError::field(
            "ports",
            format!("'{text}': expected at most {WATCHED_MAX} ports with commas, such as 9092,9093"),
        )
    };
    if parts.len() > WATCHED_MAX {
        return Err(wrong());
    }
    parts
        .iter()
        .map(|part| part.parse::<u16>().map_err(|_| wrong()))
        .collect()
}

async fn sample(
    State(agent): State<Arc<Agent>>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, ApiError> {
    let ports = parse_ports(&asked.ports)?;
    let (watches, disturbance) = if asked.probes {
        agent.disturbance(&ports)
    } else {
        (Value::Null, None)
    };
    let mut told = agent.host.sample(&agent.pids(ports));
    if let Some(totals) = agent.syncs() {
        for process in &mut told.processes {
            process.syncs = Some(totals.get(&process.pid).copied().unwrap_or_default());
        }
    }
    Ok(Json(json!({
        "monotonic_ns": shown_ns(monotonic_ns()),
        "unix_ns": unix_ns(),
        "cores": scheduling::cores().len(),
        "probes": watches,
        "disturbance": disturbance,
        "host": told,
    })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeAsked {
    /// What is to be written to each disk in sequence; some seconds' worth without.
    #[serde(default)]
    bytes: Option<u64>,
    /// For how many seconds each disk is synced; half a second without.
    #[serde(default)]
    fsync_s: Option<u32>,
}

/// Has the machine probed, by this very program.
async fn probe(
    State(agent): State<Arc<Agent>>,
    Body(asked): Body<ProbeAsked>,
) -> Result<Json<Value>, ApiError> {
    if agent.probe_dirs.is_empty() {
        return Err(ApiError::conflict(
            "this agent was started without --probe-dir: nothing may be written here",
        ));
    }
    if let Some(bytes) = asked.bytes.filter(|bytes| *bytes > agent.probe_bytes) {
        return Err(ApiError::field(
            "bytes",
            format!(
                "{bytes}: this agent lets {} be written to a disk; start it with a larger --probe-bytes",
                agent.probe_bytes
            ),
        ));
    }
    if let Some(seconds) = asked
        .fsync_s
        .filter(|seconds| !(2..=FSYNC_S_MAX).contains(seconds))
    {
        return Err(ApiError::field(
            "fsync_s",
            format!("{seconds}: expected 2 to {FSYNC_S_MAX} seconds"),
        ));
    }
    let of_disk = PROBE_WITHIN
        + Duration::from_secs(asked.bytes.unwrap_or(0) / SLOWEST_BYTES_PER_S)
        + Duration::from_secs(asked.fsync_s.unwrap_or(0).into());
    let within = of_disk * u32::try_from(agent.probe_dirs.len()).unwrap_or(u32::MAX);
    let directories = agent.probe_dirs.clone();
    let Ok(_alone) = agent.probing.try_lock() else {
        return Err(ApiError::conflict("a probe is running already: try again"));
    };
    let failed = |why: String| ApiError::internal(format!("the machine could not be probed: {why}"));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let run = tokio::task::spawn_blocking(move || {
        let mut command = std::process::Command::new(program);
        command.args(["probe", "--short", "--json"]);
        for directory in &directories {
            command.arg("--dir").arg(directory);
        }
        if let Some(bytes) = asked.bytes {
            command.args(["--bytes", &bytes.to_string()]);
        }
        if let Some(seconds) = asked.fsync_s {
            command.args(["--fsync", &seconds.to_string()]);
        }
        let mut child = command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()?;
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > within {
                child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        child.wait_with_output()
    });
    let done = run
        .await
        .map_err(|error| failed(error.to_string()))?
        .map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&done.stdout)
        .map(Json)
        .map_err(|_| failed(format!("gauge probe ended with {}", done.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_bounded_numbers() {
        assert_eq!(parse_ports("").unwrap(), BTreeSet::new());
        assert_eq!(parse_ports("9092,9093").unwrap(), BTreeSet::from([9092, 9093]));
        assert!(parse_ports("x").is_err() && parse_ports("70000").is_err());
        assert!(parse_ports(&"1,".repeat(40)).is_err());
    }

    #[test]
    fn processes_are_looked_for_again_only_after_a_while() {
        let agent = Agent::new(BTreeSet::new(), Vec::new(), 0);
        assert!(agent.pids(BTreeSet::from([1])).is_empty());
        agent.found.lock().unwrap().as_mut().unwrap().pids.insert(7);
        assert!(agent.pids(BTreeSet::from([1])).contains(&7));
        assert!(agent.pids(BTreeSet::from([2])).is_empty());
    }
}
