//! How the kernel schedules a lane: asked for, and said what one got.
//!
//! A paced lane asks for `SCHED_FIFO`, since what it sleeps through becomes lateness. A lane under FIFO that never sleeps starves
//! the machine, and the broker that shares its cores, until the kernel throttles all real-time threads for tens of milliseconds; so a
//! [`Guard`] gives FIFO up when the lane was busy for most of the last 100 ms, and the result says so.

use std::io;

use gauge_load::clock::{monotonic_ns, thread_cpu_ns};

/// Low among real-time priorities: above everybody who is not real-time is enough.
const FIFO_PRIORITY: i32 = 10;
const NICE: i32 = -10;
/// Just above the lanes (see `probes`).
pub const PROBE_PRIORITY: i32 = FIFO_PRIORITY + 1;
const WINDOW_NS: i64 = 100_000_000;
/// Share of the window from which on a lane counts as busy, in percent.
const BUSY_PERCENT: i64 = 70;

/// What a lane got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `SCHED_FIFO`.
    Fifo,
    /// A raised nice value.
    Nice,
    /// Nothing special.
    Normal,
}

impl Class {
    fn name(self) -> String {
        match self {
            Class::Fifo => format!("fifo:{FIFO_PRIORITY}"),
            Class::Nice => format!("nice:{NICE}"),
            Class::Normal => "normal".to_owned(),
        }
    }
}

fn set_policy(policy: i32, priority: i32) -> bool {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 names the calling thread, the parameters outlive the call.
    unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &parameters) == 0 }
}

fn set_nice(nice: i32) -> bool {
    // SAFETY: a plain system call; on Linux, 0 names the calling thread alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

/// Lets the calling thread's timers fire when they are due, not up to 50 us later.
pub fn exact_timers() {
    // SAFETY: a plain system call that takes no pointers. It cannot fail for a slack of 1 ns.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize) };
}

/// Cores that this process may use.
pub fn cores() -> Vec<usize> {
    // SAFETY: a cpu_set_t is plain bits, for which zero is valid; the call writes no more than its size.
    let (set, status) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let status = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (set, status)
    };
    if status != 0 {
        return vec![0];
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index lies within the set.
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .collect()
}

/// Binds the calling thread to the `index`-th of the cores that it may use, counted round. Returns the core.
pub fn pin(index: usize) -> Option<usize> {
    let cores = cores();
    let core = *cores.get(index % cores.len().max(1))?;
    pin_to(core).is_ok().then_some(core)
}

/// Binds the calling thread to this core, which must be one of `cores`.
///
/// # Errors
/// The kernel's.
pub fn pin_to(core: usize) -> io::Result<()> {
    // SAFETY: as in `cores`; the index came from the kernel.
    let status = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives the calling thread the priority of a probe.
///
/// # Errors
/// The kernel's: mostly that it is not permitted.
pub fn raise_probe() -> io::Result<()> {
    if set_policy(libc::SCHED_FIFO, PROBE_PRIORITY) {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether a probe goes before this thread. False where that cannot be found out: the thread has ended, or is of another PID namespace.
pub fn is_below_probes(tid: u32) -> bool {
    let Ok(tid) = libc::pid_t::try_from(tid) else {
        return false;
    };
    // SAFETY: only numbers are passed.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    match policy & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => policy >= 0,
        libc::SCHED_FIFO | libc::SCHED_RR => {
            let mut parameter = libc::sched_param { sched_priority: 0 };
            // SAFETY: `parameter` is valid for writing.
            let status = unsafe { libc::sched_getparam(tid, &raw mut parameter) };
            status == 0 && parameter.sched_priority < PROBE_PRIORITY
        }
        _ => false,
    }
}

/// Lets the calling thread run only when nothing else wants to.
///
/// # Errors
/// The kernel's.
pub fn lower_to_idle() -> io::Result<()> {
    if set_policy(libc::SCHED_IDLE, 0) {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sleeps until an absolute time. False: the kernel does not let it sleep.
pub fn sleep_until(due_ns: i64) -> bool {
    let due = libc::timespec {
        tv_sec: due_ns / 1_000_000_000,
        tv_nsec: due_ns % 1_000_000_000,
    };
    loop {
        // SAFETY: `due` is a valid timespec; with TIMER_ABSTIME nothing is written to the null remainder.
        let status = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &due,
                std::ptr::null_mut(),
            )
        };
        match status {
            0 => return true,
            libc::EINTR => {}
            _ => return false,
        }
    }
}

/// Watches over a lane's scheduling. Used by the lane's own thread.
#[derive(Debug)]
pub struct Guard {
    class: Class,
    description: String,
    window_from_ns: i64,
    window_cpu_ns: i64,
}

impl Guard {
    /// A thread that was not raised.
    pub fn normal() -> Guard {
        Guard {
            class: Class::Normal,
            description: Class::Normal.name(),
            window_from_ns: 0,
            window_cpu_ns: 0,
        }
    }

    /// What one got, and what became of it: "fifo:10", "fifo:10, then nice:-10 from 12.3 s (it was busy)".
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Asks for FIFO, else for a nice value.
    pub fn raise(&mut self) {
        self.class = if set_policy(libc::SCHED_FIFO, FIFO_PRIORITY) {
            Class::Fifo
        } else if set_nice(NICE) {
            Class::Nice
        } else {
            Class::Normal
        };
        self.description = self.class.name();
        self.window_from_ns = monotonic_ns();
        self.window_cpu_ns = thread_cpu_ns();
    }

    /// Back to normal, when the load has ended: what follows may take its time. The description stays.
    pub fn lower(&mut self) {
        match self.class {
            Class::Fifo => drop(set_policy(libc::SCHED_OTHER, 0)),
            Class::Nice => drop(set_nice(0)),
            Class::Normal => {}
        }
        self.class = Class::Normal;
    }

    /// To be called often; looks at the lane's CPU time every 100 ms while it runs under FIFO. `elapsed_ns` is the trial's time, for
    /// the description. Returns true when FIFO was given up.
    #[inline]
    pub fn watch(&mut self, now_ns: i64, elapsed_ns: i64) -> bool {
        if self.class != Class::Fifo || now_ns - self.window_from_ns < WINDOW_NS {
            return false;
        }
        let cpu_ns = thread_cpu_ns();
        let busy_ns = cpu_ns - self.window_cpu_ns;
        let is_busy = busy_ns * 100 > (now_ns - self.window_from_ns) * BUSY_PERCENT;
        self.window_from_ns = now_ns;
        self.window_cpu_ns = cpu_ns;
        if is_busy {
            self.give_up_fifo(elapsed_ns);
        }
        is_busy
    }

    fn give_up_fifo(&mut self, elapsed_ns: i64) {
        set_policy(libc::SCHED_OTHER, 0);
        self.class = if set_nice(NICE) {
            Class::Nice
        } else {
            Class::Normal
        };
        self.description = format!(
            "{}, then {} from {:.1} s (it was busy for more than {BUSY_PERCENT} % of 100 ms)",
            self.description,
            self.class.name(),
            elapsed_ns as f64 / 1e9
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_lane_gives_fifo_up_and_says_so() {
        let mut guard = Guard::normal();
        guard.raise();
        let raised = guard.class;
        let until_ns = monotonic_ns() + 2 * WINDOW_NS;
        let mut gave_up = false;
        while monotonic_ns() < until_ns && !gave_up {
            gave_up = guard.watch(monotonic_ns(), 1_500_000_000);
        }
        // Where FIFO is not permitted there is nothing to give up.
        assert_eq!(gave_up, raised == Class::Fifo);
        if gave_up {
            assert!(
                guard.description().starts_with("fifo:10, then "),
                "{}",
                guard.description()
            );
            assert!(guard.description().contains("from 1.5 s"));
        }
        guard.lower();
    }

    #[test]
    fn a_thread_is_bound_to_a_core_that_it_may_use() {
        let cores = cores();
        assert_eq!(pin(cores.len() + 1), Some(cores[1 % cores.len()]));
    }
}
