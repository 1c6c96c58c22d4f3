//! Which files are slow, which fail, and under which name their writes are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use glob::Pattern;

/// What happens to files whose path matches.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Matched against the path below the mount, without a leading slash.
    pub glob: Pattern,
    /// How much longer a sync takes.
    pub sync_delay: Option<Duration>,
    /// The error of every sync, as an errno.
    pub sync_error: Option<i32>,
    /// A sync that fails drops the data: it is marked as clean, and no later sync saves it.
    pub sync_drops: bool,
    /// So many syncs that have something to lose fail, and then none; without it all.
    pub times: Option<Arc<AtomicU64>>,
    /// The error of every write, as an errno.
    pub write_error: Option<i32>,
}

impl Rule {
    /// Whether a sync fails, which counts.
    pub fn strikes(&self, has_something_to_lose: bool) -> bool {
        let Some(times) = &self.times else { return true };
        has_something_to_lose
            && times
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
    }
}

/// All rules; the first that matches counts, for each of its parts.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Names and globs of the classes.
    pub classes: Vec<(String, Pattern)>,
    /// Delay of every sync without a rule of its own.
    pub sync_delay: Duration,
    /// Faults.
    pub faults: Vec<Rule>,
    /// Files at which the disk is to stand still.
    pub hold: Option<Pattern>,
}

/// What the rules say of one file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Label {
    /// Index of the class; the number of classes for `other`.
    pub class: u16,
    /// How much longer a sync takes.
    pub sync_delay: Duration,
    /// Index of the rule by which syncs fail.
    pub sync_fault: Option<usize>,
    /// The error of every write.
    pub write_error: Option<i32>,
    /// The disk may stand still at what is done to it.
    pub is_watched: bool,
}

impl Rules {
    /// What they say of the file at `path`.
    pub fn label(&self, path: &str) -> Label {
        let class = self
            .classes
            .iter()
            .position(|(_, glob)| glob.matches(path))
            .unwrap_or(self.classes.len());
        let matching = || self.faults.iter().filter(|rule| rule.glob.matches(path));
        Label {
            class: u16::try_from(class).unwrap_or(u16::MAX),
            sync_delay: matching()
                .find_map(|rule| rule.sync_delay)
                .unwrap_or(self.sync_delay),
            sync_fault: self
                .faults
                .iter()
                .position(|rule| rule.sync_error.is_some() && rule.glob.matches(path)),
            write_error: matching().find_map(|rule| rule.write_error),
            is_watched: self.hold.as_ref().is_some_and(|glob| glob.matches(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_has_a_part_counts_for_it() {
        let glob = |text: &str| Pattern::new(text).unwrap();
        let rules = Rules {
            classes: vec![("log".to_owned(), glob("*.log"))],
            sync_delay: Duration::from_millis(1),
            faults: vec![
                Rule {
                    glob: glob("a/*"),
                    sync_delay: None,
                    sync_error: Some(libc::EIO),
                    sync_drops: false,
                    times: None,
                    write_error: None,
                },
                Rule {
                    glob: glob("*"),
                    sync_delay: Some(Duration::from_millis(9)),
                    sync_error: Some(libc::EROFS),
                    sync_drops: false,
                    times: None,
                    write_error: None,
                },
            ],
            hold: None,
        };
        let label = rules.label("a/b/0.log");
        assert_eq!(
            (label.class, label.sync_delay, label.sync_fault),
            (0, Duration::from_millis(9), Some(0))
        );
        assert_eq!(rules.label("b").sync_fault, Some(1));
        assert_eq!(Rules::default().label("b").class, 0);
    }
}
