//! Whose thread it was that went before a probe: the system's under test, whose own work is no disturbance at whatever priority it runs, or another's.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::host::Host;

/// Processes of one system on one machine that are told apart.
const PIDS_MAX: usize = 64;
/// For so many looks a process that is not of the system is not looked at again.
const STRANGERS_FOR: u32 = 50;

/// The processes of the system under test on this machine: those that listen where it is reached, and those of the given names.
pub struct Own {
    host: Host,
    names: BTreeSet<String>,
    ports: BTreeSet<u16>,
    /// Filled from the front; 0: none.
    pids: [AtomicU32; PIDS_MAX],
    /// A thread that is of none of them, as far as is known; 0: none was met.
    met: AtomicU32,
}

impl Own {
    /// Those that are there now; one that comes later is found when a thread of it is met.
    pub fn of(names: BTreeSet<String>, ports: BTreeSet<u16>) -> Own {
        let own = Own::unknown(names, ports);
        for pid in own.host.find(&own.names, &own.ports) {
            own.enter(pid);
        }
        own
    }

    fn unknown(names: BTreeSet<String>, ports: BTreeSet<u16>) -> Own {
        Own {
            host: Host::default(),
            names,
            ports,
            pids: [const { AtomicU32::new(0) }; PIDS_MAX],
            met: AtomicU32::new(0),
        }
    }

    /// Whether a thread is of the system, as far as is known. For probes: it takes some us, waits for nobody, and leaves it to a [`Finder`] to find
    /// out about one that is not known.
    pub fn holds(&self, tid: u32) -> bool {
        let is_own = self
            .pids
            .iter()
            .map(|pid| pid.load(Ordering::Relaxed))
            .take_while(|pid| *pid != 0)
            .any(|pid| pid == tid || Path::new(&format!("/proc/{pid}/task/{tid}")).exists());
        if !is_own {
            self.met.store(tid, Ordering::Relaxed);
        }
        is_own
    }

    fn enter(&self, pid: u32) {
        for place in &self.pids {
            match place.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(there) if there == pid => return,
                Err(_) => {}
            }
        }
    }
}

/// Finds out whose the threads are that probes met and did not know; for the witness.
pub struct Finder {
    own: Arc<Own>,
    /// Processes that are not of the system.
    strangers: BTreeSet<u32>,
    looks: u32,
}

impl Finder {
    /// For the processes of this system.
    pub fn new(own: Arc<Own>) -> Finder {
        Finder {
            own,
            strangers: BTreeSet::new(),
            looks: 0,
        }
    }

    /// Finds out about the thread that was met last, if any.
    pub fn look(&mut self) {
        self.looks += 1;
        if self.looks.is_multiple_of(STRANGERS_FOR) {
            // One may have begun to listen.
            self.strangers.clear();
        }
        let tid = self.own.met.swap(0, Ordering::Relaxed);
        if tid == 0 {
            return;
        }
        let Some(pid) = self.own.host.process_of(tid) else {
            return;
        };
        if self.strangers.contains(&pid) {
            return;
        }
        if self.own.host.is_one_of(pid, &self.own.names, &self.own.ports) {
            self.own.enter(pid);
        } else {
            self.strangers.insert(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn thread_id() -> u32 {
        // SAFETY: a plain question.
        unsafe { libc::gettid() }.unsigned_abs()
    }

    #[test]
    fn who_listens_where_the_system_is_reached_is_of_it_with_all_threads() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = Own::of(BTreeSet::new(), BTreeSet::from([port]));
        assert!(own.holds(std::process::id()));
        assert!(own.holds(thread_id()), "a test is a thread of its own");
        assert!(!own.holds(1));
    }

    #[test]
    fn one_that_comes_later_is_found_when_it_is_met() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = Arc::new(Own::unknown(BTreeSet::new(), BTreeSet::from([port])));
        let mut finder = Finder::new(Arc::clone(&own));
        finder.look();
        assert!(!own.holds(thread_id()), "it was not met yet");
        finder.look();
        assert!(own.holds(thread_id()));
        assert!(finder.strangers.is_empty());
    }

    #[test]
    fn a_stranger_is_looked_at_seldom() {
        let own = Arc::new(Own::of(BTreeSet::new(), BTreeSet::new()));
        let mut finder = Finder::new(Arc::clone(&own));
        assert!(!own.holds(thread_id()));
        finder.look();
        assert_eq!(finder.strangers, BTreeSet::from([std::process::id()]));
        for _ in 0..STRANGERS_FOR {
            finder.look();
        }
        assert!(finder.strangers.is_empty(), "it may have begun to listen");
    }
}
