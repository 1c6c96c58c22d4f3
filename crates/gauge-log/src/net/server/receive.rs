//! From bytes to requests.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Server;
use super::memory::{charge_input, leave_turn, take_turn};
use crate::net::transport::Received;

/// Bytes received from one connection before others have their turn.
const TURN_BYTES: usize = 1 << 20;
/// Input memory that a connection may have without asking: most requests fit.
const INPUT_FREE_BYTES: usize = 64 << 10;
/// Memory that the beginning of a request takes at first.
const INPUT_FIRST_BYTES: usize = 4 << 10;
/// Memory that the rest of a request of a proven client takes at once, while there is plenty.
const INPUT_PROVEN_BYTES: usize = 1 << 20;

impl Server<'_> {
    /// Handles requests that are complete in the connection's own buffer; returns whether more may be received.
    pub(super) fn handle_buffered(&mut self, number: u64) -> bool {
        loop {
            let room = self.shared.unread_bytes_max();
            let Some(connection) = self.connections.get_mut(&number) else {
                return false;
            };
            if !connection.may_handle(room) {
                // What waits may wait for long: what was read of it is not kept.
                if connection.pending_input().is_empty() {
                    self.compact_input(number);
                }
                return false;
            }
            let frame = match frame_in(connection.pending_input(), connection.frame_bytes_max()) {
                Err(()) => {
                    self.reject(number);
                    return false;
                }
                Ok(None) => {
                    self.compact_input(number);
                    return true;
                }
                Ok(Some(frame)) => frame,
            };
            // The buffer leaves the connection while a request in it is handled, so that both can be used.
            let input = std::mem::take(&mut connection.input);
            let from = connection.input_done;
            let handled = self.handle(number, &input[from + 4..from + frame]);
            let Some(connection) = self.connections.get_mut(&number) else {
                return false;
            };
            connection.input = input;
            if handled {
                connection.input_done += frame;
                connection.is_proven = true;
            }
        }
    }

    /// Drops handled bytes from the front of the buffer, and the buffer when it is empty.
    pub(super) fn compact_input(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if connection.input_done == 0 {
            return;
        }
        connection.input.drain(..connection.input_done);
        connection.input_done = 0;
        connection.begun = Instant::now();
        leave_turn(self.shared, self.index, number);
        if connection.input.is_empty() {
            connection.input = Vec::new();
        }
        charge_input(self.shared, connection);
    }

    /// Receives and handles requests until the turn is over; returns whether the connection is still there.
    pub(super) fn receive(&mut self, number: u64) -> bool {
        let mut received = 0;
        let mut scratch = std::mem::take(&mut self.scratch);
        let open = loop {
            let room = self.shared.unread_bytes_max();
            let Some(connection) = self.connections.get_mut(&number) else {
                break false;
            };
            if !connection.may_handle(room) || !connection.readable {
                break true;
            }
            if received >= TURN_BYTES {
                self.enqueue(number);
                break true;
            }
            let count = if connection.input.is_empty() {
                self.receive_scratch(number, &mut scratch)
            } else {
                self.receive_input(number)
            };
            match count {
                Some(count) => received += count,
                None => break self.connections.contains_key(&number),
            }
        };
        self.scratch = scratch;
        open
    }

    /// Receives into the thread's memory and handles what is complete there; the beginning of another request goes to the connection's buffer.
    pub(super) fn receive_scratch(&mut self, number: u64, scratch: &mut [u8]) -> Option<usize> {
        let count = self.receive_into(number, as_uninit(scratch))?;
        let mut rest = &scratch[..count];
        loop {
            let room = self.shared.unread_bytes_max();
            let connection = self.connections.get_mut(&number)?;
            let frame = match frame_in(rest, connection.frame_bytes_max()) {
                Err(()) => {
                    self.reject(number);
                    return None;
                }
                Ok(Some(frame)) if connection.may_handle(room) => frame,
                _ => break,
            };
            if !self.handle(number, &rest[4..frame]) {
                break;
            }
            rest = &rest[frame..];
        }
        let connection = self.connections.get_mut(&number)?;
        connection.is_proven |= rest.len() < count;
        connection.begun = Instant::now();
        connection.input.extend_from_slice(rest);
        charge_input(self.shared, connection);
        Some(count)
    }

    /// Receives the rest of a request that was begun into the connection's buffer.
    pub(super) fn receive_input(&mut self, number: u64) -> Option<usize> {
        let connection = self.connections.get_mut(&number)?;
        let have = connection.input.len();
        let want = match connection.input.first_chunk::<4>() {
            Some(length) => u32::from_be_bytes(*length) as usize + 4,
            None => 4,
        };
        let used = self.shared.input_bytes.load(Ordering::Relaxed);
        let is_plenty = used < self.shared.settings.input_bytes_max() / 2;
        // Grows with what has arrived, not with what was claimed, unless the client has kept its word before.
        let room = match connection.is_proven && is_plenty {
            true => (want - have).min(INPUT_PROVEN_BYTES),
            false => (want - have).min((3 * have).max(INPUT_FIRST_BYTES)),
        };
        // A quarter is kept for clients that have ended a request before: who only begins some cannot take it all.
        let limit = match connection.is_proven {
            true => self.shared.settings.input_bytes_max(),
            false => self.shared.settings.input_bytes_max() / 4 * 3,
        };
        let over = used + room > limit && have + room > INPUT_FREE_BYTES;
        // One connection at a time may go beyond the limit, or half-received requests could block each other for ever.
        if over && !take_turn(self.shared, self.index, number) {
            connection.starved = true;
            self.shared.metrics.memory_waits.add(1);
            self.waiting_for_memory.push(number);
            return None;
        }
        connection.starved = false;
        let mut input = std::mem::take(&mut connection.input);
        if input.capacity() < have + room {
            input.reserve_exact(room);
        }
        let count = self.receive_into(number, &mut input.spare_capacity_mut()[..room]);
        // SAFETY: `receive_into` has filled that many bytes behind the `have` that were there.
        unsafe { input.set_len(have + count.unwrap_or(0)) };
        let connection = self.connections.get_mut(&number)?;
        connection.input = input;
        charge_input(self.shared, connection);
        let count = count?;
        self.handle_buffered(number).then_some(count)
    }

    /// Fills the front of `buffer`; None when there is nothing more for now, or the connection is gone.
    pub(super) fn receive_into(&mut self, number: u64, buffer: &mut [MaybeUninit<u8>]) -> Option<usize> {
        let connection = self.connections.get_mut(&number)?;
        match connection
            .transport
            .receive(connection.socket.as_raw_fd(), buffer)
        {
            Received::Bytes(count) => {
                connection.last_progress = Instant::now();
                if connection.is_stranger && connection.exchange.is_none() {
                    self.welcome(number);
                }
                return Some(count);
            }
            Received::Nothing => connection.readable = false,
            Received::Turn => self.enqueue(number),
            // The end of the turn sends, and waits for the socket.
            Received::Full => {}
            Received::Ended => self.close(number),
            Received::Malformed => self.reject(number),
        }
        None
    }

    /// Closes a connection that sent something that is no request.
    pub(super) fn reject(&mut self, number: u64) {
        self.shared.metrics.malformed.add(1);
        self.close(number);
    }
}

/// The size of the request at the front of `bytes`, its length field included; None when it is not complete, an error when it is too large to be one.
pub(super) fn frame_in(bytes: &[u8], bytes_max: usize) -> Result<Option<usize>, ()> {
    let Some(length) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > bytes_max {
        return Err(());
    }
    Ok((bytes.len() >= length + 4).then_some(length + 4))
}

fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same memory, of which less is promised; only initialised bytes are written to it (by recv), so that it stays initialised.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}
