//! The operation at which a disk stands still, so that a cut comes at a chosen write, sync or rename of a chosen file.
//!
//! Between the operation and the cut nothing else happens on the disk: every request waits. For those who use it the disk is slow for a moment, and then the power fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

use gauge_load::clock::monotonic_ns;
use serde_json::{Value, json};

use crate::accounts::Deed;
use crate::lock;

/// Where a disk is to stand still.
#[derive(Clone, Debug)]
pub struct Place {
    /// Files whose path matches; the pattern itself is kept with the rules.
    pub glob: String,
    /// What is done to them.
    pub deed: Deed,
    /// At which time that it is done, from 1.
    pub count: u64,
}

#[derive(Debug, Default)]
struct State {
    place: Option<Place>,
    seen: u64,
    held_ns: Option<i64>,
}

/// Whether a disk stands still, or where it will.
#[derive(Debug, Default)]
pub struct Hold {
    state: Mutex<State>,
    changed: Condvar,
    is_armed: AtomicBool,
    is_held: AtomicBool,
}

impl Hold {
    /// From now on, counts towards this place.
    pub fn arm(&self, place: Place) {
        *lock(&self.state) = State {
            place: Some(place),
            ..State::default()
        };
        self.is_armed.store(true, Ordering::Release);
    }

    /// Goes on, and forgets the place.
    pub fn release(&self) {
        let mut state = lock(&self.state);
        *state = State::default();
        self.is_armed.store(false, Ordering::Release);
        self.is_held.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// Something was done to a file that the place may be about.
    pub fn count(&self, deed: Deed) {
        if !self.is_armed.load(Ordering::Acquire) {
            return;
        }
        let mut state = lock(&self.state);
        let Some(place) = &state.place else { return };
        if place.deed != deed || state.held_ns.is_some() {
            return;
        }
        let is_there = state.seen + 1 == place.count;
        state.seen += 1;
        if is_there {
            state.held_ns = Some(monotonic_ns());
            self.is_held.store(true, Ordering::Release);
        }
    }

    /// Whether it stands still.
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// Waits while it stands still.
    pub fn wait(&self) {
        if !self.is_held() {
            return;
        }
        let mut state = lock(&self.state);
        while state.held_ns.is_some() {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// For `status`: null, or the place with what was seen.
    pub fn told(&self) -> Value {
        let state = lock(&self.state);
        match &state.place {
            None => Value::Null,
            Some(place) => json!({
                "glob": place.glob,
                "at": place.deed.name(),
                "count": place.count,
                "seen": state.seen,
                "held_ns": state.held_ns,
            }),
        }
    }
}
