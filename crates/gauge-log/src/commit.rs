//! Group commit: everything that was appended since the last commit is written at once, then acknowledged and shown to readers at once.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::mutants::{self, Mutant};
use crate::recovery::failure;
use crate::scheduling::prefer_short_slices;
use crate::settings::Fault;
use crate::shared::{Shared, lock};
use crate::storage::journal::{Pending, PendingWrite};

/// A commit on its way: what was pending when it began.
#[derive(Debug)]
pub struct Commit {
    writes: Vec<PendingWrite>,
    pending: Pending,
}

impl Commit {
    /// Takes what is pending; None when nothing is. From here until `finish` the caller holds `commit_running`.
    pub fn begin(shared: &Shared) -> io::Result<Option<Self>> {
        // What was appended behind a commit that failed would be acknowledged with a hole before it, and recovery would cut the journal at that hole.
        if shared.commit_failed.load(Ordering::Relaxed) && !mutants::is(Mutant::AcknowledgedAfterFailure) {
            return Err(io::Error::other("an earlier commit could not be written"));
        }
        let mut pending = shared.broker().journal.take_pending();
        let writes = std::mem::take(&mut pending.writes);
        Ok((!writes.is_empty()).then_some(Self { writes, pending }))
    }

    /// Writes it, then acknowledges it. `own` is the calling network thread, which need not be signalled.
    pub fn finish(self, shared: &Shared, own: Option<u16>) -> io::Result<()> {
        let Self { writes, pending } = self;
        let write = || {
            write_all(shared, &writes).inspect_err(|_| shared.commit_failed.store(true, Ordering::Relaxed))
        };
        if shared.settings.fault == Some(Fault::EarlyAck) || mutants::is(Mutant::AcknowledgedBeforeWritten) {
            publish(shared, pending, own);
            return write();
        }
        let began = Instant::now();
        write()?;
        if !shared.settings.commit_delay.is_zero() {
            std::thread::sleep(shared.settings.commit_delay);
        }
        let took = began.elapsed();
        shared.metrics.commit_ns.add(took.as_nanos() as u64);
        shared
            .metrics
            .commit_us_squared
            .add((took.as_micros() as u64).saturating_pow(2));
        publish(shared, pending, own);
        if shared.settings.fault == Some(Fault::AckAtAnySync) {
            return acknowledge_what_arrived(shared, own);
        }
        Ok(())
    }
}

/// One commit; false when there was nothing to write. The caller holds `commit_running`.
fn commit_locked(shared: &Shared, own: Option<u16>) -> io::Result<bool> {
    match Commit::begin(shared)? {
        Some(commit) => commit.finish(shared, own).map(|()| true),
        None => Ok(false),
    }
}

/// Of `Fault::AckAtAnySync`: acknowledges what arrived while a commit was written, and writes it after that.
fn acknowledge_what_arrived(shared: &Shared, own: Option<u16>) -> io::Result<()> {
    loop {
        let mut pending = shared.broker().journal.take_pending();
        let writes = std::mem::take(&mut pending.writes);
        if writes.is_empty() {
            return Ok(());
        }
        publish(shared, pending, own);
        write_all(shared, &writes)?;
    }
}

/// Moves the high watermarks, lets acknowledgements go, wakes readers.
fn publish(shared: &Shared, pending: Pending, own: Option<u16>) {
    let end = pending.end;
    let (mut woken, maintain, prepare);
    {
        let mut broker = shared.broker();
        woken = broker.note_committed(pending);
        maintain = broker.journal.rolled.load(Ordering::Relaxed);
        prepare = broker.journal.wants_segment();
    }
    shared.committed.store(end, Ordering::Release);
    shared.metrics.commits.add(1);
    if maintain {
        shared.want_maintenance();
    }
    if prepare {
        shared.want_segment();
    }
    woken.sort_unstable_by_key(|connection| (connection.thread, connection.number));
    woken.dedup();
    if !woken.is_empty() {
        // Who is served first changes from commit to commit: else readers of the same messages would differ by their number.
        let first = shared.metrics.commits.get() as usize % woken.len();
        woken.rotate_left(first);
    }
    shared.wake(&woken, own);
    for (index, mailbox) in shared.mailboxes.iter().enumerate() {
        if own != Some(index as u16) && mailbox.awaits_commit.swap(false, Ordering::AcqRel) {
            mailbox.wake.signal();
        }
    }
}

fn write_all(shared: &Shared, writes: &[PendingWrite]) -> io::Result<()> {
    writes.iter().try_for_each(|write| write_out(shared, write))
}

fn write_out(shared: &Shared, write: &PendingWrite) -> io::Result<()> {
    if write.to > write.from {
        // SAFETY: the journal handed this range out, and it appends only behind it.
        let bytes = unsafe { write.chunk.bytes(write.from, write.to) };
        write
            .segment
            .write(bytes, write.chunk.start + write.from as u64)
            .map_err(|error| {
                let what = failure("cannot write", &write.segment.final_path(), &error);
                io::Error::new(error.kind(), what)
            })?;
        shared.metrics.written_bytes.add(bytes.len() as u64);
        let end = write.chunk.start + write.to as u64;
        if !shared.is_fsync() {
            shared.write_back.note(&write.segment, end, bytes.len() as u64);
        }
    }
    if write.completes {
        write.chunk.clean.store(true, Ordering::Release);
    }
    Ok(())
}

/// Commits in the calling network thread, unless a commit is running already; then the committer does it afterwards.
pub fn commit_here(shared: &Shared, own: u16) -> io::Result<()> {
    if shared.settings.fault == Some(Fault::AckAtAnySync) {
        // A network thread that writes by itself would take in nothing meanwhile.
        shared.want_commit();
        return Ok(());
    }
    match shared.commit_running.try_lock() {
        Ok(_running) => commit_locked(shared, Some(own)).map(|_| ()),
        Err(_) => {
            shared.want_commit();
            Ok(())
        }
    }
}

/// The committer's thread: commits whenever it is asked to, until everything should end, and then once more.
pub fn run(shared: &Shared) -> io::Result<()> {
    prefer_short_slices();
    loop {
        {
            let mut wanted = lock(&shared.commit_wanted);
            while !*wanted && !shared.is_stopping() {
                wanted = shared
                    .commit_changed
                    .wait(wanted)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            *wanted = false;
        }
        let running = lock(&shared.commit_running);
        let committed = commit_locked(shared, None)?;
        drop(running);
        if committed {
            // What arrived meanwhile goes out at once: the wait of the last write was its linger.
            let pending = shared.broker().journal.has_pending();
            *lock(&shared.commit_wanted) |= pending;
        } else if shared.is_stopping() {
            return Ok(());
        }
    }
}
