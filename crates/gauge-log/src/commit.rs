//! Group commit: everything that was appended since the last commit is written at once, then acknowledged and shown to readers at once.

use std::io;
use std::sync::atomic::Ordering;

use crate::broker::Broker;
use crate::broker::topics::ConnectionId;
use crate::scheduling::prefer_short_slices;
use crate::shared::{Shared, lock};
use crate::storage::journal::PendingWrite;

/// Writes what is pending; false when nothing was. `own` is the calling network thread, which need not be signalled.
fn commit_locked(shared: &Shared, own: Option<u16>) -> io::Result<bool> {
    let pending = shared.broker().journal.take_pending();
    if pending.writes.is_empty() {
        return Ok(false);
    }
    let early_ack = shared.settings.early_ack;
    if !early_ack {
        write_all(shared, &pending.writes)?;
    }
    let mut woken: Vec<ConnectionId> = Vec::new();
    let (maintain, prepare);
    {
        let mut broker = shared.broker();
        broker.journal.note_durable(pending.end);
        maintain = broker.journal.rolled.load(Ordering::Relaxed);
        prepare = broker.journal.wants_segment();
        let Broker { topics, sessions, .. } = &mut *broker;
        for (partition, next_offset) in pending.published {
            // A partition that is gone was deleted since.
            if let Some(partition) = topics.partition_mut(partition) {
                partition.high_watermark = partition.high_watermark.max(next_offset);
                woken.append(&mut partition.waiters);
                for &watcher in &partition.watchers {
                    sessions.note(watcher, &mut woken);
                }
            }
        }
    }
    shared.committed.store(pending.end, Ordering::Release);
    shared.metrics.commits.add(1);
    if maintain {
        shared.want_maintenance();
    }
    if prepare {
        shared.want_segment();
    }
    woken.sort_unstable_by_key(|connection| (connection.thread, connection.number));
    woken.dedup();
    shared.wake(&woken, own);
    for (index, mailbox) in shared.mailboxes.iter().enumerate() {
        if own != Some(index as u16) && mailbox.awaits_commit.swap(false, Ordering::AcqRel) {
            mailbox.wake.signal();
        }
    }
    if early_ack {
        write_all(shared, &pending.writes)?;
    }
    Ok(true)
}

fn write_all(shared: &Shared, writes: &[PendingWrite]) -> io::Result<()> {
    writes.iter().try_for_each(|write| write_out(shared, write))
}

fn write_out(shared: &Shared, write: &PendingWrite) -> io::Result<()> {
    if write.to > write.from {
        // SAFETY: the journal handed this range out, and it appends only behind it.
        let bytes = unsafe { write.chunk.buffer().bytes(write.from, write.to) };
        write
            .segment
            .write(bytes, write.chunk.start + write.from as u64)?;
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
