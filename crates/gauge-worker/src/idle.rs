//! `gauge idle`: keeps the CPUs from falling asleep.
//!
//! A thread per CPU spins at `SCHED_IDLE`, so that it runs when nothing else wants to and gives way to whatever does. A CPU that never halts wakes up faster; on
//! a virtual machine it also spares the exit to the host and the way back. It is a setting that is asked for and recorded, as it changes what is measured.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::{accounts, scheduling};

/// Exit status when the input was wrong.
const INPUT_WRONG: u8 = 2;
/// Exit status when the CPUs cannot be kept awake here.
const FAILED: u8 = 3;

/// Keeps every CPU that it may use awake, at the lowest priority, until it is ended.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// End when this process has ended
    #[arg(long, value_name = "PID")]
    parent_pid: Option<u32>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match begin(&args) {
        Ok(()) => loop {
            std::thread::park();
        },
        Err((status, message)) => {
            eprintln!("gauge idle: {message}");
            ExitCode::from(status)
        }
    }
}

fn begin(args: &Args) -> Result<(), (u8, String)> {
    let parent = gauge_process::watch_parent(args.parent_pid).map_err(|message| (INPUT_WRONG, message))?;
    let cores = scheduling::cores();
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if let Some((share, file)) = accounts::quota(&cgroups, Path::new("/sys/fs/cgroup"), cores.len()) {
        return Err((
            FAILED,
            format!(
                "a quota of {share:.2} CPUs ({}) would be eaten by it: leave idle at halt, or run without the quota",
                file.display()
            ),
        ));
    }
    let failed = |error: std::io::Error| (FAILED, format!("it could not be started: {error}"));
    let signals = gauge_process::take_signals().map_err(failed)?;
    let (answers, begun) = std::sync::mpsc::channel();
    for &core in &cores {
        let answers = answers.clone();
        std::thread::Builder::new()
            .name(format!("idle-{core}"))
            .stack_size(128 << 10)
            .spawn(move || {
                // The class first: until then it would compete with others.
                let ready = scheduling::lower_to_idle().and_then(|()| scheduling::pin_to(core));
                let failed = ready.is_err();
                let _ = answers.send(ready);
                if failed {
                    return;
                }
                loop {
                    std::hint::spin_loop();
                }
            })
            .map_err(failed)?;
    }
    for _ in &cores {
        begun
            .recv()
            .unwrap_or_else(|_| Err(std::io::Error::other("a thread ended")))
            .map_err(failed)?;
    }
    gauge_process::end_on("idle", signals, parent, || {}).map_err(failed)?;
    let mut out = std::io::stdout();
    let _ = writeln!(out, "ready {}", cores.len()).and_then(|()| out.flush());
    Ok(())
}
