//! Whose thread it was that went before a probe: the system's under test, whose own work is no disturbance at whatever priority it runs, or another's.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::host::Host;

/// Processes of one system on one machine that are told apart.
const PIDS_MAX: usize = 64;

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
        let own = Own {
            host: Host::default(),
            names,
            ports,
            pids: [const { AtomicU32::new(0) }; PIDS_MAX],
            met: AtomicU32::new(0),
        };
        for pid in own.host.find(&own.names, &own.ports) {
            own.enter(pid);
        }
        own
    }

    /// Whether a thread is of the system, as far as is known. For probes: it takes some us, waits for nobody, and leaves it to [`Own::look`] to find
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

    /// Finds out about the thread that was met last, if any. `strangers`: processes that need not be looked at again; one more, where it is of none of the
    /// system's.
    pub fn look(&self, strangers: &mut BTreeSet<u32>) {
        let tid = self.met.swap(0, Ordering::Relaxed);
        if tid == 0 {
            return;
        }
        let Some(pid) = self.host.process_of(tid) else {
            return;
        };
        if strangers.contains(&pid) {
            return;
        }
        if self.host.is_one_of(pid, &self.names, &self.ports) {
            self.enter(pid);
        } else {
            strangers.insert(pid);
        }
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
    fn one_that_comes_later_is_found_when_it_is_met_and_a_stranger_is_looked_at_once() {
        let own = Own::of(BTreeSet::new(), BTreeSet::from([1]));
        let mut strangers = BTreeSet::new();
        assert!(!own.holds(thread_id()));
        own.look(&mut strangers);
        assert_eq!(strangers, BTreeSet::from([std::process::id()]));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let later = Own {
            ports: BTreeSet::from([port]),
            ..own
        };
        assert!(!later.holds(thread_id()));
        later.look(&mut strangers);
        assert!(!later.holds(thread_id()), "nobody looks twice");
        later.look(&mut BTreeSet::new());
        assert!(later.holds(thread_id()));
    }
}
