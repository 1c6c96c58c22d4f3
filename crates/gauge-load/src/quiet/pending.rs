//! Answers that wait until every probe has looked past them.

use std::collections::VecDeque;

/// A batch: messages that were answered at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// When.
    pub answered_ns: i64,
    /// The earliest time at which one of its messages began.
    pub from_ns: i64,
    /// The latest time that plays a part: the answer, or a beginning that another host's clock puts after it.
    pub until_ns: i64,
    /// Which subscription's, where there are several.
    pub subscription: u32,
    /// It was there at the end of an earlier interval than the one that is running.
    pub is_carried: bool,
    len: u32,
}

/// A queue of batches with their messages, of bounded size. It allocates nothing once it has been made.
#[derive(Debug)]
pub struct Pending<T> {
    groups: VecDeque<Group>,
    items: Vec<T>,
    /// Items before this one are decided.
    head: usize,
    items_max: usize,
    groups_max: usize,
}

impl<T: Copy> Pending<T> {
    /// Room for so many messages and batches that are not decided.
    pub fn with_room(items: usize, groups: usize) -> Pending<T> {
        Pending {
            groups: VecDeque::with_capacity(groups),
            // Decided items lie before the others until they are half of all.
            items: Vec::with_capacity(2 * items),
            head: 0,
            items_max: items,
            groups_max: groups,
        }
    }

    /// Adds a whole batch. False: there is no room for it.
    #[inline]
    pub fn push_all(&mut self, answered_ns: i64, from_ns: i64, until_ns: i64, items: &[T]) -> bool {
        if !self.has_room(items.len()) {
            return false;
        }
        self.items.extend_from_slice(items);
        self.groups.push_back(Group {
            answered_ns,
            from_ns,
            until_ns: until_ns.max(answered_ns),
            subscription: 0,
            is_carried: false,
            len: items.len() as u32,
        });
        true
    }

    /// Adds a message that began at `began_ns`, to the last batch if that was answered at the same time. False: there is no room for it.
    #[inline]
    pub fn push(&mut self, answered_ns: i64, subscription: u32, began_ns: i64, item: T) -> bool {
        if let Some(last) = self.groups.back_mut()
            && last.answered_ns == answered_ns
            && last.subscription == subscription
            && !last.is_carried
            && self.items.len() < self.items.capacity()
            && self.items.len() - self.head < self.items_max
        {
            last.from_ns = last.from_ns.min(began_ns);
            last.until_ns = last.until_ns.max(began_ns);
            last.len += 1;
            self.items.push(item);
            return true;
        }
        if !self.has_room(1) {
            return false;
        }
        self.items.push(item);
        self.groups.push_back(Group {
            answered_ns,
            from_ns: began_ns,
            until_ns: began_ns.max(answered_ns),
            subscription,
            is_carried: false,
            len: 1,
        });
        true
    }

    #[inline]
    fn has_room(&mut self, items: usize) -> bool {
        if self.groups.len() >= self.groups_max || self.items.len() - self.head + items > self.items_max {
            return false;
        }
        if self.items.len() + items > self.items.capacity() {
            self.compact();
        }
        true
    }

    /// Moves what is not decided to the front.
    fn compact(&mut self) {
        self.items.copy_within(self.head.., 0);
        self.items.truncate(self.items.len() - self.head);
        self.head = 0;
    }

    /// Gives every batch whose last time lies before the horizon to `decide`, in order.
    #[inline]
    pub fn decide(&mut self, horizon_ns: i64, mut decide: impl FnMut(&Group, &[T])) {
        while let Some(group) = self.groups.front()
            && group.until_ns <= horizon_ns
        {
            let until = self.head + group.len as usize;
            decide(group, &self.items[self.head..until]);
            self.head = until;
            self.groups.pop_front();
        }
        // Kept small, so that it stays in the cache; each item is moved once at most for each that was decided.
        if self.head > 512 && self.head >= self.items.len() - self.head {
            self.compact();
        }
    }

    /// An interval ends: what is not decided is carried over to the next. Gives what was not carried before to `carry`.
    pub fn carry(&mut self, mut carry: impl FnMut(&Group, &[T])) {
        let mut from = self.head;
        for group in &mut self.groups {
            let until = from + group.len as usize;
            if !group.is_carried {
                carry(group, &self.items[from..until]);
                group.is_carried = true;
            }
            from = until;
        }
    }

    /// Messages that are not decided.
    pub fn len(&self) -> usize {
        self.items.len() - self.head
    }

    /// Whether everything is decided.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_decided_whole_and_in_order_once_the_probes_have_looked_past_them() {
        let mut pending = Pending::with_room(8, 4);
        assert!(pending.push_all(10, 5, 5, &[5, 6, 7]));
        assert!(pending.push(12, 0, 4, 4) && pending.push(12, 0, 13, 13) && pending.push(12, 1, 9, 9));
        let mut decided = Vec::new();
        pending.decide(9, |_, _| panic!("the answer lies ahead"));
        pending.decide(12, |group, items| decided.push((*group, items.to_vec())));
        // The second batch has a beginning at 13, and the third waits behind it.
        assert_eq!(decided.len(), 1);
        assert_eq!(
            (decided[0].0.from_ns, decided[0].1.as_slice()),
            (5, [5, 6, 7].as_slice())
        );
        let mut carried = 0;
        pending.carry(|_, items| carried += items.len());
        pending.carry(|_, _| panic!("carried once"));
        assert_eq!(carried, 3);
        assert!(
            pending.push(12, 1, 9, 9),
            "a batch of its own beside the one that was carried"
        );
        pending.decide(13, |group, items| decided.push((*group, items.to_vec())));
        let seen: Vec<(bool, usize)> = decided
            .iter()
            .map(|(group, items)| (group.is_carried, items.len()))
            .collect();
        assert_eq!(seen, [(false, 3), (true, 2), (true, 1), (false, 1)]);
        assert_eq!(decided[1].0.from_ns, 4);
        assert_eq!((pending.is_empty(), pending.len()), (true, 0));
    }

    #[test]
    fn it_is_bounded_and_never_grows() {
        let mut pending = Pending::with_room(100, 10);
        let capacity = pending.items.capacity();
        for round in 0..1000 {
            let mut taken = 0;
            while pending.push_all(round, round, round, &[round; 30]) {
                taken += 1;
            }
            assert_eq!(taken, 3);
            assert!(!pending.push_all(round, round, round, &[round; 30]));
            pending.decide(round, |_, items| assert_eq!(items, [round; 30]));
        }
        let mut pushed = 0;
        while pending.push(5, 0, 5, 5) {
            pushed += 1;
        }
        assert_eq!(pushed, 100);
        pending.decide(5, |_, _| {});
        let mut groups = 0;
        while pending.push(5 + groups, 0, 5, 5) {
            groups += 1;
        }
        assert_eq!(groups, 10);
        assert_eq!(pending.items.capacity(), capacity);
    }
}
