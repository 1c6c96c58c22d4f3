//! Starting and stopping a log.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::json;

use crate::broker::Broker;
use crate::broker::groups::Groups;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::net::server::Server;
use crate::recovery::{cluster_id, failure, recover};
use crate::settings::Settings;
use crate::shared::{Loads, Mail, Mailbox, Shared, Wake, lock};
use crate::storage::cache::ChunkCache;
use crate::storage::disk::{Directory, Disk};
use crate::storage::faulty::Faulty;
use crate::storage::journal::Journal;
use crate::write_back::{self, WriteBack};
use crate::{commit, load, maintain, prepare};

/// A running log.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// What its threads share.
    pub shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    committer: JoinHandle<()>,
    _directory_lock: OwnedFd,
}

/// Starts a log: recovers what is in its directory, then listens. The error is a sentence for a person.
pub fn start(settings: Settings) -> Result<Running, String> {
    let started = Instant::now();
    let events = Events::open(settings.events.as_deref()).map_err(|error| {
        format!(
            "cannot write events to {}: {error}",
            display(settings.events.as_deref())
        )
    })?;
    let mut disk: Arc<dyn Disk> = Arc::new(Directory(settings.data.clone()));
    if let Some(fault) = settings.fault {
        disk = Arc::new(Faulty { disk, fault });
    }
    disk.make()
        .map_err(|error| failure("cannot create the data directory", &settings.data, error))?;
    let directory_lock = lock_directory(&settings)?;
    let listener = TcpListener::bind(settings.listen).map_err(|error| {
        format!("cannot listen on {}: {error}; choose another address with --listen HOST:PORT (port 0: any free one)", settings.listen)
    })?;
    raise_backlog(&listener);
    raise_descriptor_limit();
    let address = listener
        .local_addr()
        .map_err(|error| format!("cannot tell the listening address: {error}"))?;
    let shared = Arc::new(assemble(settings, disk, events, address, started)?);
    let mut threads = Vec::new();
    let mut listener = Some(listener);
    for index in 0..shared.settings.threads {
        let listener = listener.take();
        let run = move |shared: &Shared| Server::new(shared, index, listener)?.run();
        threads.push(spawn(&shared, "network", run)?);
    }
    threads.push(spawn(&shared, "load", |shared: &Shared| {
        load::run(shared);
        Ok(())
    })?);
    threads.push(spawn(&shared, "maintain", maintain::run)?);
    threads.push(spawn(&shared, "prepare", prepare::run)?);
    threads.push(spawn(&shared, "write-back", write_back::run)?);
    if let Some(address) = shared.settings.metrics {
        threads.push(crate::metrics::serve(&shared, address)?);
    }
    let committer = spawn(&shared, "commit", commit::run)?;
    Ok(Running {
        address,
        shared,
        threads,
        committer,
        _directory_lock: directory_lock,
    })
}

impl Running {
    /// Waits until the log ends; the error is why it had to.
    pub fn wait(self) -> Result<(), String> {
        for thread in self.threads {
            let _ = thread.join();
        }
        // The committer ends last: what the others appended is written.
        self.shared.want_commit();
        let _ = self.committer.join();
        self.shared.events.write("stopped", json!({}));
        match lock(&self.shared.failure).take() {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }
}

fn display(path: Option<&std::path::Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// Starts a thread; its failure (a panic included) ends the log.
fn spawn(
    shared: &Arc<Shared>,
    name: &str,
    run: impl FnOnce(&Shared) -> std::io::Result<()> + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let shared = Arc::clone(shared);
    let thread_name = name.to_owned();
    let body = move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&shared)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => shared.fail(format!("the {thread_name} thread failed: {error}")),
            Err(_) => shared.fail(format!(
                "the {thread_name} thread panicked; this is a defect of gauge log"
            )),
        }
    };
    let builder = std::thread::Builder::new().name(format!("log-{name}"));
    builder
        .spawn(body)
        .map_err(|error| format!("cannot start a thread: {error}"))
}

/// Only one log may use a directory.
fn lock_directory(settings: &Settings) -> Result<OwnedFd, String> {
    let directory = &settings.data;
    let path = directory.join("lock");
    let file = File::create(&path)
        .map_err(|error| failure("cannot write to the data directory", directory, error))?;
    // SAFETY: a plain system call on a descriptor that `file` owns.
    let failed = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if failed != 0 {
        return Err(format!(
            "another gauge log uses {}: stop it, or choose another directory with --data",
            directory.display()
        ));
    }
    Ok(OwnedFd::from(file))
}

/// Many clients may connect at once; the standard library's backlog of 128 would make some of them wait a second.
fn raise_backlog(listener: &TcpListener) {
    // SAFETY: a plain system call on a descriptor that `listener` owns; failure leaves the smaller backlog.
    unsafe { libc::listen(listener.as_raw_fd(), 4096) };
}

/// Each connection takes a descriptor; the usual soft limit of 1024 is for programs that use select(2).
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls on a structure that lives during both; failure leaves the limit as it is.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// A random identity in hexadecimal digits.
fn random_name(bytes: usize) -> String {
    let id = crate::api::topics::random_id();
    id[..bytes].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Recovers a log, or begins one; nothing of it runs yet.
pub fn assemble(
    settings: Settings,
    disk: Arc<dyn Disk>,
    events: Events,
    address: SocketAddr,
    started: Instant,
) -> Result<Shared, String> {
    disk.make()
        .map_err(|error| failure("cannot create the data directory", &settings.data, error))?;
    let cluster_id = cluster_id(disk.as_ref(), || random_name(16))?;
    let recovered = recover(&settings, &disk, Groups::new(random_name(6)), &events)?;
    let seconds = started.elapsed().as_secs_f64();
    events.write(
        "recovered",
        json!({"seconds": seconds, "scanned_bytes": recovered.scanned_bytes, "cut_bytes": recovered.cut_bytes,
               "damaged_ranges": recovered.damaged.len(), "end": recovered.tail.start, "topics": recovered.topics.len()}),
    );
    let cache = Arc::new(ChunkCache::new(settings.chunks_max(), settings.chunk_bytes));
    let journal = Journal::new(
        Arc::clone(&cache),
        settings.durability,
        settings.segment_bytes,
        recovered.tail,
        recovered.chunks,
        recovered.segments,
    );
    let producer_ids = recovered.producer_ids_taken;
    let broker = Broker::new(
        recovered.topics,
        recovered.groups,
        journal,
        producer_ids,
        Arc::clone(&cache),
    );
    let mailbox = || -> Result<Mailbox, String> {
        let wake = Wake::new().map_err(|error| format!("cannot create an eventfd: {error}"))?;
        Ok(Mailbox {
            wake,
            mail: Mutex::new(Mail::default()),
            awaits_commit: AtomicBool::new(false),
        })
    };
    let mailboxes = (0..settings.threads)
        .map(|_| mailbox())
        .collect::<Result<Vec<_>, _>>()?;
    let host = settings
        .advertise
        .clone()
        .unwrap_or_else(|| address.ip().to_string());
    let metrics = Metrics::default();
    metrics.damaged.add(recovered.damaged.len() as u64);
    Ok(Shared {
        advertised: (host, address.port()),
        settings,
        cluster_id,
        disk,
        broker: Mutex::new(broker),
        cache,
        committed: AtomicU64::new(recovered.tail.start),
        mailboxes,
        loads: Mutex::new(Loads {
            damaged: recovered.damaged.into_iter().collect(),
            ..Default::default()
        }),
        loads_changed: Condvar::new(),
        commit_wanted: Mutex::new(false),
        commit_changed: Condvar::new(),
        commit_running: Mutex::new(()),
        commit_failed: AtomicBool::new(false),
        spares: AtomicU64::new(0),
        write_back: WriteBack::default(),
        maintenance_wanted: Mutex::new(false),
        maintenance_changed: Condvar::new(),
        segment_wanted: Mutex::new(true),
        segment_changed: Condvar::new(),
        failure: Mutex::new(None),
        stopping: AtomicBool::new(false),
        input_bytes: AtomicUsize::new(0),
        input_turn: AtomicU64::new(0),
        parked_bytes: AtomicUsize::new(0),
        output_bytes: AtomicUsize::new(0),
        metrics,
        events,
        limit_free_ns: AtomicI64::new(0),
        started,
    })
}
