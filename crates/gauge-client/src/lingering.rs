//! Which open batches have waited for their linger.

use std::collections::VecDeque;

/// Partitions with an open batch, in the order in which these were opened, which is that in which they have lingered.
#[derive(Debug, Default)]
pub(crate) struct Lingering(VecDeque<(i64, u32)>);

impl Lingering {
    /// A partition's batch was opened, and has lingered at `due_ns`.
    pub fn opened(&mut self, partition: usize, due_ns: i64) {
        self.0.push_back((due_ns, partition as u32));
    }

    /// The next partition whose open batch has lingered. `due_ns_of` tells when that of a partition has, None where none is open: those that left
    /// before are passed over, also where they would be the next, so that nobody is woken up for them.
    pub fn next(&mut self, now_ns: i64, due_ns_of: impl Fn(usize) -> Option<i64>) -> Option<usize> {
        while let Some(&(due_ns, partition)) = self.0.front() {
            let is_open = due_ns_of(partition as usize) == Some(due_ns);
            if is_open && due_ns > now_ns {
                return None;
            }
            self.0.pop_front();
            if is_open {
                return Some(partition as usize);
            }
        }
        None
    }

    /// When the next one has lingered, as far as it was looked for; `i64::MAX`: none is open.
    pub fn deadline_ns(&self) -> i64 {
        self.0.front().map_or(i64::MAX, |(due_ns, _)| *due_ns)
    }

    /// None is open any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_left_before_is_passed_over() {
        let mut lingering = Lingering::default();
        for (partition, due_ns) in [(0, 10), (1, 20), (0, 30)] {
            lingering.opened(partition, due_ns);
        }
        // The first batch of partition 0 was full before it had lingered, and another one is open.
        let open = |partition| (partition == 0).then_some(30);
        assert_eq!(lingering.deadline_ns(), 10);
        assert_eq!(lingering.next(5, open), None);
        assert_eq!(lingering.deadline_ns(), 30, "nobody is woken up for the others");
        assert_eq!(lingering.next(29, open), None);
        assert_eq!(lingering.next(30, open), Some(0));
        assert_eq!(
            (lingering.next(99, open), lingering.deadline_ns()),
            (None, i64::MAX)
        );
    }
}
