//! Probe exchanges with other workers, from which the lab computes how far their clocks are apart (docs/fleet.md).
//!
//! One UDP socket beside the API, one thread: it asks each peer in turn and answers those who know the key that the lab gave to all
//! workers of the trial, as long as the lab is heard. Question and answer have the same 48 bytes, so nobody can be flooded through it:
//!
//! ```text
//! offset  size  field (little-endian)
//!      0     4  magic "SGc1"
//!      4     4  0 question, 1 answer
//!      8     8  key
//!     16     8  number: the peer's place in the list of the one who asks, plus 65,536 times a running number
//!     24     8  t1: when the question left, clock of the one who asks
//!     32     8  t2: when it arrived, clock of the one who answers (0 in a question)
//!     40     8  t3: when the answer left, the same clock (0 in a question)
//! ```
//!
//! With t4, when the answer arrived, an exchange bounds how far the peer is ahead: t3 - t4 <= ahead <= t2 - t1, whatever the two ways
//! took (as NTP has it, RFC 5905). Lost packets are lost samples. Nothing is secret in it; whoever can read and forge packets on the
//! path can falsify the comparison of clocks, which is all that they can do.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gauge_load::clock::{monotonic_ns, shown_ns};

use crate::check::{count, whole};
use crate::error::ApiError;
use crate::request::ProbeClocks;

const MAGIC: [u8; 4] = *b"SGc1";
const BYTES: usize = 48;
const QUESTION: u32 = 0;
const ANSWER: u32 = 1;
const PEERS_MAX: usize = 256;
/// Samples kept until they are fetched.
const SAMPLES_MAX: usize = 32_768;
/// Samples of one answer of the API.
const ANSWER_MAX: usize = 4096;
/// A lab that compares clocks asks for samples every second; one that has been silent for so long is gone, and so is what it set going.
const SILENCE_NS: i64 = 5_000_000_000;
/// How often the thread looks whether it is still needed when nobody is asked.
const IDLE: Duration = Duration::from_millis(200);

/// Peer, t1, t2, t3, t4.
pub type Sample = (usize, i64, i64, i64, i64);

#[derive(Default)]
struct State {
    /// None: nobody compares clocks.
    key: Option<u64>,
    /// When the lab was last heard.
    heard_ns: i64,
    peers: Vec<SocketAddr>,
    period_ns: i64,
    samples: VecDeque<Sample>,
    /// Number of the sample after the last.
    next: u64,
}

/// The probe of this worker. It ends when this is dropped.
pub struct ClockProbe {
    state: Arc<Mutex<State>>,
    port: u16,
}

impl ClockProbe {
    /// Binds beside the API and starts the thread; it asks nobody and answers nobody yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(address: IpAddr) -> io::Result<ClockProbe> {
        let socket = UdpSocket::bind((address, 0))?;
        let port = socket.local_addr()?.port();
        let state = Arc::new(Mutex::new(State::default()));
        let weak = Arc::downgrade(&state);
        std::thread::Builder::new()
            .name("clock-probe".to_owned())
            .spawn(move || {
                let mut asker = Asker::default();
                while let Some(state) = weak.upgrade() {
                    asker.turn(&socket, &state);
                }
            })?;
        Ok(ClockProbe { state, port })
    }

    /// Where peers find it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Asks these peers from now on. The samples of others are dropped.
    ///
    /// # Errors
    /// A bad request that names the field.
    pub fn aim(&self, request: &ProbeClocks) -> Result<(), ApiError> {
        count("peers", request.peers.len(), 0, PEERS_MAX)?;
        let period_ms = whole("period_ms", request.period_ms, 5, 60_000, "ms")?;
        let mut state = lock(&self.state);
        if state.peers != request.peers {
            state.samples.clear();
        }
        state.key = Some(request.key);
        state.heard_ns = monotonic_ns();
        state.peers.clone_from(&request.peers);
        state.period_ns = period_ms as i64 * 1_000_000;
        Ok(())
    }

    /// Samples from a number on, and the number after the last.
    pub fn since(&self, since: u64) -> (u64, Vec<Sample>) {
        let mut state = lock(&self.state);
        state.heard_ns = monotonic_ns();
        let first = state.next - state.samples.len() as u64;
        let skipped = since.saturating_sub(first) as usize;
        let samples: Vec<Sample> = state
            .samples
            .iter()
            .skip(skipped)
            .take(ANSWER_MAX)
            .copied()
            .collect();
        let from = first + skipped.min(state.samples.len()) as u64;
        (from + samples.len() as u64, samples)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ns() -> i64 {
    shown_ns(monotonic_ns())
}

#[derive(Default)]
struct Asker {
    due_ns: i64,
    number: u64,
}

impl Asker {
    /// Asks what is due, then waits for a packet until the next is.
    fn turn(&mut self, socket: &UdpSocket, state: &Mutex<State>) {
        let wait = self.ask(socket, state);
        if socket.set_read_timeout(Some(wait)).is_err() {
            return;
        }
        let mut packet = [0; BYTES + 1];
        // A time-out, or an error that an earlier packet brought back: both are no sample.
        let Ok((BYTES, from)) = socket.recv_from(&mut packet) else {
            return;
        };
        let arrived_ns = now_ns();
        let mut state = lock(state);
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| packet[at + byte]));
        if packet[..4] != MAGIC || state.key != Some(word(8)) {
            return;
        }
        let kind = u32::from_le_bytes(std::array::from_fn(|byte| packet[4 + byte]));
        let time = |at: usize| word(at).cast_signed();
        match kind {
            QUESTION => {
                drop(state);
                let answer = |left_ns| write(ANSWER, word(8), word(16), [time(24), arrived_ns, left_ns]);
                // Lost answers are lost samples.
                let _ = socket.send_to(&answer(now_ns()), from);
            }
            ANSWER => {
                let peer = (word(16) % 65_536) as usize;
                if state.peers.get(peer) != Some(&from) {
                    return;
                }
                if state.samples.len() == SAMPLES_MAX {
                    state.samples.pop_front();
                }
                state
                    .samples
                    .push_back((peer, time(24), time(32), time(40), arrived_ns));
                state.next += 1;
            }
            _ => {}
        }
    }

    /// How long nothing is to be asked.
    fn ask(&mut self, socket: &UdpSocket, state: &Mutex<State>) -> Duration {
        let (key, peers, period_ns) = {
            let mut state = lock(state);
            if monotonic_ns() - state.heard_ns > SILENCE_NS {
                state.key = None;
                state.peers.clear();
            }
            if state.peers.is_empty() {
                return IDLE;
            }
            let due = monotonic_ns() >= self.due_ns;
            let peers = if due { state.peers.clone() } else { Vec::new() };
            (state.key.unwrap_or_default(), peers, state.period_ns)
        };
        if !peers.is_empty() {
            self.due_ns = monotonic_ns() + period_ns;
            self.number += 1;
            for (at, peer) in peers.iter().enumerate() {
                let question = write(QUESTION, key, self.number * 65_536 + at as u64, [now_ns(), 0, 0]);
                let _ = socket.send_to(&question, peer);
            }
        }
        let left_ns = (self.due_ns - monotonic_ns()).clamp(1_000_000, IDLE.as_nanos() as i64);
        Duration::from_nanos(left_ns.unsigned_abs())
    }
}

fn write(kind: u32, key: u64, number: u64, times: [i64; 3]) -> [u8; BYTES] {
    let mut packet = [0; BYTES];
    packet[..4].copy_from_slice(&MAGIC);
    packet[4..8].copy_from_slice(&kind.to_le_bytes());
    packet[8..16].copy_from_slice(&key.to_le_bytes());
    packet[16..24].copy_from_slice(&number.to_le_bytes());
    for (slot, time) in packet[24..].chunks_exact_mut(8).zip(times) {
        slot.copy_from_slice(&time.to_le_bytes());
    }
    packet
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

    use super::*;
    use std::net::Ipv4Addr;

    fn aim(probe: &ClockProbe, key: u64, peers: Vec<SocketAddr>) {
        let request = ProbeClocks {
            key,
            peers,
            period_ms: 5,
        };
        probe.aim(&request).unwrap();
    }

    #[test]
    fn exchanges_bound_the_difference_of_two_clocks() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (one, other) = (ClockProbe::start(here).unwrap(), ClockProbe::start(here).unwrap());
        let stranger = ClockProbe::start(here).unwrap();
        aim(&one, 7, vec![SocketAddr::new(here, other.port())]);
        aim(&other, 7, vec![]);
        aim(&stranger, 8, vec![SocketAddr::new(here, other.port())]);
        std::thread::sleep(Duration::from_millis(400));
        let (next, samples) = one.since(0);
        assert!(samples.len() > 5 && next == samples.len() as u64, "{samples:?}");
        for &(peer, t1, t2, t3, t4) in &samples {
            // Both have the same clock, so 0 is within the bounds of every exchange.
            assert!(peer == 0 && t2 >= t1 && t3 >= t2 && t4 >= t3, "{samples:?}");
        }
        assert_eq!(
            stranger.since(0).1,
            [],
            "who does not know the key gets no answer"
        );
        let (_, rest) = one.since(next);
        assert!(rest.len() < samples.len());
    }

    #[test]
    fn a_lab_that_is_silent_is_forgotten() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (one, other) = (ClockProbe::start(here).unwrap(), ClockProbe::start(here).unwrap());
        aim(&one, 7, vec![SocketAddr::new(here, other.port())]);
        aim(&other, 7, vec![]);
        // As if it had been silent for so long already.
        for probe in [&one, &other] {
            lock(&probe.state).heard_ns = monotonic_ns() - SILENCE_NS - 1;
        }
        std::thread::sleep(2 * IDLE);
        for probe in [&one, &other] {
            let state = lock(&probe.state);
            assert!(state.key.is_none() && state.peers.is_empty());
        }
        let (next, _) = one.since(0);
        std::thread::sleep(2 * IDLE);
        assert_eq!(one.since(0).0, next, "nothing is asked any more");
    }
}
