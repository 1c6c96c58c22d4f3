//! How many connections there may be, and who goes when another comes.
//!
//! A connection is a *stranger* until a request on it was allowed, then a *guest*. A guest works while a request of its own that was read
//! whole is answered, and idles otherwise. When all seats are taken, the oldest stranger makes room for a stranger, and the guest that
//! has idled the longest for a guest: connections that somebody keeps open without need keep nobody out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Connections at once on which a request was allowed.
pub const GUESTS_MAX: usize = 256;
/// Connections at once on which none was allowed yet.
pub const STRANGERS_MAX: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stranger,
    Idle,
    Working,
}

struct Place {
    kind: Kind,
    /// When it became what it is, in steps of `Room::step`.
    since: u64,
    evicted: Arc<Notify>,
}

#[derive(Default)]
struct Room {
    places: HashMap<u64, Place>,
    step: u64,
}

impl Room {
    /// Whether there is room for one more among those that `counts` names, of whom the oldest that `may_go` names goes if need be.
    fn make_room(&mut self, most: usize, counts: fn(Kind) -> bool, may_go: Kind) -> bool {
        if self.places.values().filter(|place| counts(place.kind)).count() < most {
            return true;
        }
        let idle = self.places.iter().filter(|(_, place)| place.kind == may_go);
        let Some(oldest) = idle.min_by_key(|(_, place)| place.since).map(|(id, _)| *id) else {
            return false;
        };
        if let Some(place) = self.places.remove(&oldest) {
            place.evicted.notify_one();
        }
        true
    }

    fn set(&mut self, id: u64, kind: Kind) {
        self.step += 1;
        if let Some(place) = self.places.get_mut(&id) {
            (place.kind, place.since) = (kind, self.step);
        }
    }
}

/// All seats.
#[derive(Clone, Default)]
pub struct Seats(Arc<Mutex<Room>>);

impl Seats {
    fn room(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a connection that has just come, as a stranger.
    pub fn take(&self) -> Seat {
        let mut room = self.room();
        room.make_room(STRANGERS_MAX, |kind| kind == Kind::Stranger, Kind::Stranger);
        room.step += 1;
        let (id, evicted) = (room.step, Arc::new(Notify::new()));
        let place = Place {
            kind: Kind::Stranger,
            since: id,
            evicted: Arc::clone(&evicted),
        };
        room.places.insert(id, place);
        Seat {
            seats: self.clone(),
            id,
            evicted,
        }
    }
}

/// The seat of a connection, which is free when this is dropped.
pub struct Seat {
    seats: Seats,
    id: u64,
    evicted: Arc<Notify>,
}

impl Seat {
    /// A request of this connection is allowed. False when all guests work, or when another has this seat already.
    pub fn welcome(&self) -> bool {
        let mut room = self.seats.room();
        match room.places.get(&self.id).map(|place| place.kind) {
            None => false,
            Some(Kind::Idle | Kind::Working) => true,
            Some(Kind::Stranger) => {
                let has_room = room.make_room(GUESTS_MAX, |kind| kind != Kind::Stranger, Kind::Idle);
                if has_room {
                    room.set(self.id, Kind::Idle);
                }
                has_room
            }
        }
    }

    /// The connection works until this is dropped.
    pub fn work(self: &Arc<Self>) -> Work {
        self.seats.room().set(self.id, Kind::Working);
        Work(Arc::clone(self))
    }

    /// Resolves when somebody else takes the seat.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.room().places.remove(&self.id);
    }
}

/// A request that is being answered.
pub struct Work(Arc<Seat>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.seats.room().set(self.0.id, Kind::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_guests_make_room_and_working_ones_do_not() {
        let seats = Seats::default();
        let guests: Vec<Arc<Seat>> = (0..GUESTS_MAX)
            .map(|_| {
                let seat = Arc::new(seats.take());
                assert!(seat.welcome());
                seat
            })
            .collect();
        let first = guests[0].work();
        let late = Arc::new(seats.take());
        assert!(late.welcome() && guests[0].welcome());
        assert!(!guests[1].welcome(), "it has idled the longest");
        let working: Vec<Work> = guests[2..].iter().chain([&late]).map(Seat::work).collect();
        let denied = seats.take();
        assert!(!denied.welcome());
        drop(first);
        assert!(denied.welcome() && !guests[0].welcome());
        drop((working, guests, late, denied));
        assert!(seats.room().places.is_empty());
    }

    #[test]
    fn the_oldest_stranger_makes_room() {
        let seats = Seats::default();
        let strangers: Vec<Seat> = (0..=STRANGERS_MAX).map(|_| seats.take()).collect();
        assert!(!strangers[0].welcome() && strangers[1].welcome());
    }
}
