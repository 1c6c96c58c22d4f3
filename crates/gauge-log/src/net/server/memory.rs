//! Bounded memory: what requests may take while they are incomplete, and who has to go when it is short.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Server;
use crate::net::connection::{Connection, Parked};
use crate::shared::Shared;

/// While memory is short, a request that was begun must go on, and a response must be read on, within this time.
const STALL_TIME: Duration = Duration::from_secs(1);
/// How often connections that wait for memory try again.
const MEMORY_PERIOD: Duration = Duration::from_millis(1);

impl Server<'_> {
    /// While memory is short, closes connections that hold some and make no progress.
    pub(super) fn sweep(&mut self, now: Instant) {
        // Connections that wait for input memory keep the sum just below its limit.
        let short_of_input = self.connections.values().any(|connection| connection.starved)
            || self.shared.input_bytes.load(Ordering::Relaxed) > self.shared.settings.input_bytes_max();
        let short_of_output =
            self.shared.output_bytes.load(Ordering::Relaxed) > self.shared.settings.output_bytes_max();
        if !short_of_input && !short_of_output {
            return;
        }
        let unread = |connection: &&Connection| {
            let holds = short_of_output && connection.has_output() && !connection.writable;
            holds && now.duration_since(connection.last_progress) > STALL_TIME
        };
        let numbers: Vec<u64> = self
            .connections
            .values()
            .filter(unread)
            .map(|connection| connection.number)
            .collect();
        for number in numbers {
            self.shared.metrics.evicted.add(1);
            self.close(number);
        }
        if short_of_input {
            self.evict_begun(now);
        }
    }

    /// While memory for requests is short, closes the connections whose request has been incomplete for longest.
    pub(super) fn evict_begun(&mut self, now: Instant) {
        let old = |connection: &&Connection| {
            let waits_for_client = connection.parked.is_none() && connection.input_charged > 0;
            waits_for_client && now.duration_since(connection.begun) > STALL_TIME
        };
        let mut begun: Vec<(Instant, u64)> = self
            .connections
            .values()
            .filter(old)
            .map(|connection| (connection.begun, connection.number))
            .collect();
        begun.sort_unstable();
        for (_, number) in begun {
            if self.shared.input_bytes.load(Ordering::Relaxed) <= self.shared.settings.input_bytes_max() / 2 {
                return;
            }
            self.shared.metrics.evicted.add(1);
            self.close(number);
        }
    }

    /// Lets connections that wait for memory try again: when something was written, which frees chunks, and every `MEMORY_PERIOD`, as other threads free memory too.
    pub(super) fn look_for_memory(&mut self) {
        if self.waiting_for_memory.is_empty() {
            return;
        }
        let committed = self.shared.committed.load(Ordering::Acquire);
        let now = Instant::now();
        if committed == self.committed_at_look && now < self.next_memory_look {
            return;
        }
        self.committed_at_look = committed;
        self.next_memory_look = now + MEMORY_PERIOD;
        for number in std::mem::take(&mut self.waiting_for_memory) {
            let Some(connection) = self.connections.get_mut(&number) else {
                continue;
            };
            if matches!(connection.parked, Some(Parked::Memory)) {
                connection.parked = None;
            }
            self.enqueue(number);
        }
    }
}

/// What stands for a connection in `Shared::input_turn`.
pub(super) fn turn_of(thread: u16, number: u64) -> u64 {
    (u64::from(thread) << 48 | number) + 1
}

/// Whether the connection is, or becomes, the one that may take input memory beyond the limit.
pub(super) fn take_turn(shared: &Shared, thread: u16, number: u64) -> bool {
    let own = turn_of(thread, number);
    let taken = shared
        .input_turn
        .compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire);
    taken.is_ok() || taken == Err(own)
}

/// The connection does not need memory beyond the limit any more.
pub(super) fn leave_turn(shared: &Shared, thread: u16, number: u64) {
    let _ =
        shared
            .input_turn
            .compare_exchange(turn_of(thread, number), 0, Ordering::AcqRel, Ordering::Acquire);
}

/// Keeps the account of the memory that a connection's encrypted and unsent output takes; returns by how much it has become less.
pub(super) fn charge_encrypted(shared: &Shared, connection: &mut Connection) -> usize {
    let now = connection.transport.unsent_bytes();
    let before = std::mem::replace(&mut connection.encrypted_charged, now);
    if now != before {
        connection.unread_bytes = connection.unread_bytes + now - before;
        shared.output_bytes.fetch_add(now, Ordering::Relaxed);
        shared.output_bytes.fetch_sub(before, Ordering::Relaxed);
    }
    before.saturating_sub(now)
}

/// Keeps the account of the memory that a connection's input takes.
pub(super) fn charge_input(shared: &Shared, connection: &mut Connection) {
    let now = connection.input.capacity();
    if now != connection.input_charged {
        shared.input_bytes.fetch_add(now, Ordering::Relaxed);
        shared
            .input_bytes
            .fetch_sub(connection.input_charged, Ordering::Relaxed);
        connection.input_charged = now;
    }
}
