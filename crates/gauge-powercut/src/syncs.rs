//! Syncs that take time: threads that wait, so that those which serve requests do not.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::lock;

/// Threads at most; beyond it, syncs wait for each other.
const THREADS_MAX: usize = 512;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
}

/// Threads for work that waits; started when they are needed, kept for the next time.
#[derive(Clone, Default)]
pub struct Syncs {
    shared: Arc<Shared>,
}

impl Syncs {
    /// Runs `job` in a thread of its own, as far as there may be another one.
    ///
    /// # Errors
    /// When the first thread could not be started; the job is not run then.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut queue = lock(&self.shared.queue);
        queue.jobs.push_back(Box::new(job));
        if queue.idle >= queue.jobs.len() || queue.threads == THREADS_MAX {
            self.shared.ready.notify_one();
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new()
            .name("sync".to_owned())
            .spawn(move || work(&shared));
        match started {
            Ok(_) => queue.threads += 1,
            // One of the others will come to it.
            Err(_) if queue.threads > 0 => {}
            Err(error) => {
                queue.jobs.pop_back();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Jobs that were started or wait, and are not finished.
    pub fn waiting(&self) -> usize {
        let queue = lock(&self.shared.queue);
        queue.threads - queue.idle + queue.jobs.len()
    }
}

fn work(shared: &Shared) {
    // SAFETY: a system call that takes no pointers. Sleeps then end when they should, not up to 50 us later.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let mut queue = lock(&shared.queue);
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            job();
            queue = lock(&shared.queue);
            continue;
        }
        queue.idle += 1;
        queue = shared
            .ready
            .wait(queue)
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        queue.idle -= 1;
    }
}
