//! Connections whose clients have shown nothing yet.
//!
//! Where the log is guarded (by TLS, users or both) a connection is a *stranger* until its client has logged in, or, without users, until it has sent something
//! through TLS. Strangers have little time and few seats: when those are taken, the oldest stranger goes, so that a flood of half-open connections cannot keep
//! others out. Attempts to log in have a rate, because looking at one takes time that others wait for.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Server;
use crate::api::{self, Outcome};
use crate::net::connection::Parked;
use crate::net::output::Response;
use crate::wire::Read;

/// How long the TLS handshake and the login may take together.
const LOGIN_WITHIN: Duration = Duration::from_secs(10);
/// Strangers at once, over all network threads.
const STRANGERS_MAX: usize = 256;
/// Attempts to log in: one in this time for each network thread ...
const ATTEMPT_PERIOD: Duration = Duration::from_millis(10);
/// ... and so much of the time in which there was none may be used later.
const ATTEMPT_BURST: Duration = Duration::from_secs(1);

/// The strangers of one network thread.
pub(super) struct Strangers {
    /// The oldest first, with the time by which it must have logged in.
    seats: VecDeque<(Instant, u64)>,
    seats_max: usize,
    /// When the next attempt is allowed.
    next_attempt: Instant,
}

impl Strangers {
    /// Those of one of so many threads, among which connections are spread evenly.
    pub(super) fn new(threads: u16) -> Self {
        Self {
            seats: VecDeque::new(),
            seats_max: STRANGERS_MAX.div_ceil(usize::from(threads)),
            next_attempt: Instant::now(),
        }
    }

    /// Takes a seat for a connection; returns the one that has to leave its own for that.
    fn add(&mut self, number: u64, now: Instant) -> Option<u64> {
        self.seats.push_back((now + LOGIN_WITHIN, number));
        let is_full = self.seats.len() > self.seats_max;
        is_full.then(|| self.seats[0].1)
    }

    /// A connection is no stranger any more, or gone.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(at) = self.seats.iter().position(|(_, seated)| *seated == number) {
            self.seats.remove(at);
        }
    }

    /// When the oldest has to go.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.seats.front().map(|(deadline, _)| *deadline)
    }

    /// One whose time is over.
    fn late(&self, now: Instant) -> Option<u64> {
        let (deadline, number) = self.seats.front()?;
        (*deadline <= now).then_some(*number)
    }

    /// Notes an attempt to log in; the error is when to ask again.
    fn attempt(&mut self, now: Instant) -> Result<(), Instant> {
        if self.next_attempt > now {
            return Err(self.next_attempt);
        }
        let earliest = now.checked_sub(ATTEMPT_BURST).unwrap_or(now);
        self.next_attempt = self.next_attempt.max(earliest) + ATTEMPT_PERIOD;
        Ok(())
    }
}

impl Server<'_> {
    /// Gives a new connection one of the seats for strangers.
    pub(super) fn seat_stranger(&mut self, number: u64, now: Instant) {
        if let Some(oldest) = self.strangers.add(number, now) {
            self.shared.metrics.strangers_closed.add(1);
            self.close(oldest);
        }
    }

    /// Closes the connections whose clients have taken too long.
    pub(super) fn send_away(&mut self, now: Instant) {
        while let Some(number) = self.strangers.late(now) {
            self.shared.metrics.strangers_closed.add(1);
            self.close(number);
        }
    }

    /// A connection is no stranger any more.
    pub(super) fn welcome(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_stranger = false;
            self.strangers.remove(number);
        }
    }

    /// Handles a request where there are users; None when it has to be handled again later because there were too many attempts to log in.
    pub(super) fn handle_guarded(&mut self, number: u64, frame: &[u8]) -> Option<Read<Outcome>> {
        let id = self.id(number);
        let connection = self.connections.get_mut(&number)?;
        let Some(exchange) = &mut connection.exchange else {
            return Some(api::handle(self.shared, id, frame));
        };
        if exchange.awaits_attempt()
            && let Err(until) = self.strangers.attempt(Instant::now())
        {
            connection.parked = Some(Parked::Limit { until });
            self.deadlines.insert((until, number), ());
            return None;
        }
        Some(api::handle_stranger(self.shared, id, exchange, frame))
    }

    /// The client has shown who it is.
    pub(super) fn log_in(&mut self, number: u64, response: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.exchange = None;
        }
        self.welcome(number);
        self.answer(number, Response::plain(response), 0);
    }

    /// The client could not; it is told so, if it expects to be told, and then the connection ends.
    pub(super) fn refuse(&mut self, number: u64, response: Option<Vec<u8>>) {
        self.shared.metrics.failed_logins.add(1);
        let Some(response) = response else {
            self.close(number);
            return;
        };
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_ending = true;
        }
        self.answer(number, Response::plain(response), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_leaves_its_seat_to_the_newest() {
        let mut strangers = Strangers::new(128);
        let now = Instant::now();
        assert_eq!(strangers.add(1, now), None);
        assert_eq!(strangers.add(2, now), None);
        assert_eq!(strangers.add(3, now), Some(1));
        strangers.remove(1);
        strangers.remove(2);
        assert_eq!(strangers.add(4, now), None);
        assert_eq!(strangers.late(now), None);
        assert_eq!(strangers.late(now + LOGIN_WITHIN), Some(3));
    }

    #[test]
    fn attempts_have_a_rate_and_a_burst() {
        let mut strangers = Strangers::new(1);
        let now = Instant::now() + Duration::from_secs(10);
        let burst = (0..1000).take_while(|_| strangers.attempt(now).is_ok()).count();
        assert_eq!(burst, 101);
        let again = strangers.attempt(now).unwrap_err();
        assert_eq!(again, now + ATTEMPT_PERIOD);
        assert_eq!(strangers.attempt(again), Ok(()));
        assert!(strangers.attempt(again).is_err());
    }
}
