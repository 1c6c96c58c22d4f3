//! The connections of a producer or consumer, each to one node, numbered from 1.

use super::session::Session;
use crate::stream::Peer;

#[derive(Debug)]
struct Place<L> {
    peer: Peer,
    link: L,
    session: Session,
}

/// Connections, with what the owner knows of each.
#[derive(Debug)]
pub(super) struct Links<L> {
    places: Vec<Option<Place<L>>>,
}

impl<L> Default for Links<L> {
    fn default() -> Links<L> {
        Links { places: Vec::new() }
    }
}

impl<L> Links<L> {
    /// The number of a connection to a node of which `has_room` is true.
    pub fn find(&self, peer: &Peer, has_room: impl Fn(&L, &Session) -> bool) -> Option<usize> {
        let is_it = |place: &Option<Place<L>>| {
            place
                .as_ref()
                .is_some_and(|place| place.peer == *peer && has_room(&place.link, &place.session))
        };
        self.places.iter().position(is_it).map(|at| at + 1)
    }

    /// The number of the next connection.
    pub fn vacant(&mut self) -> usize {
        match self.places.iter().position(Option::is_none) {
            Some(at) => at + 1,
            None => {
                self.places.push(None);
                self.places.len()
            }
        }
    }

    /// Puts a connection into a vacant place.
    pub fn put(&mut self, number: usize, peer: Peer, link: L, session: Session) {
        self.places[number - 1] = Some(Place { peer, link, session });
    }

    /// Takes a connection away.
    pub fn remove(&mut self, number: usize) -> Option<(L, Session)> {
        let place = self.places.get_mut(number.checked_sub(1)?)?.take()?;
        Some((place.link, place.session))
    }

    /// A connection.
    #[inline]
    pub fn get(&self, number: usize) -> Option<(&L, &Session)> {
        let place = self.places.get(number.checked_sub(1)?)?.as_ref()?;
        Some((&place.link, &place.session))
    }

    /// A connection.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<(&mut L, &mut Session)> {
        let place = self.places.get_mut(number.checked_sub(1)?)?.as_mut()?;
        Some((&mut place.link, &mut place.session))
    }

    /// Numbers that connections may have; not all of them need be there.
    pub fn numbers(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.places.len()
    }

    /// The connections.
    pub fn iter(&self) -> impl Iterator<Item = (&L, &Session)> {
        self.places
            .iter()
            .flatten()
            .map(|place| (&place.link, &place.session))
    }
}
