//! What the last cut took: of which files, what had been done to them, and the bytes themselves, so that a lost message is found where it was.

use std::sync::Mutex;

use serde::Serialize;

use crate::lock;

/// When something was last done to a file, `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Deeds {
    /// It was made.
    pub created_ns: Option<i64>,
    /// Bytes were written.
    pub written_ns: Option<i64>,
    /// A sync of it ended well.
    pub synced_ns: Option<i64>,
    /// A sync of it failed.
    pub sync_failed_ns: Option<i64>,
    /// It got another name.
    pub renamed_ns: Option<i64>,
    /// A name of it was removed.
    pub removed_ns: Option<i64>,
}

/// What of a file is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lost {
    /// Bytes that were not synced.
    Data,
    /// Its name, and so all of it: no durable name leads to it.
    Name,
}

/// A file that lost something.
#[derive(Clone, Debug, Serialize)]
pub struct LostFile {
    /// Its path before the cut.
    pub path: String,
    /// What is gone.
    pub lost: Lost,
    /// Un-synced bytes that are gone.
    pub dropped_bytes: u64,
    /// Un-synced bytes that survived.
    pub survived_bytes: u64,
    /// What had been done to it.
    #[serde(flatten)]
    pub deeds: Deeds,
    /// Lost bytes with their places, as far as they were kept.
    #[serde(skip)]
    pub bytes: Vec<(u64, Vec<u8>)>,
}

/// Where bytes that were looked for had been.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Place in the file.
    pub offset: u64,
    /// The file.
    #[serde(flatten)]
    pub file: LostFile,
}

/// Files that are named at most.
const FILES_MAX: usize = 40;
/// Places that are named at most.
const FOUND_MAX: usize = 8;

/// What the last cut took.
#[derive(Debug, Default)]
pub struct Evidence {
    files: Mutex<Vec<LostFile>>,
}

impl Evidence {
    /// Keeps what a cut took; those files first that lost most.
    pub fn keep(&self, mut files: Vec<LostFile>) {
        files.sort_by_key(|file| std::cmp::Reverse(file.dropped_bytes));
        *lock(&self.files) = files;
    }

    /// The files that lost most.
    pub fn files(&self) -> Vec<LostFile> {
        let files = lock(&self.files);
        let named = files.iter().take(FILES_MAX);
        named
            .map(|file| LostFile {
                bytes: Vec::new(),
                ..file.clone()
            })
            .collect()
    }

    /// Where these bytes (None: any byte) are among those that were lost.
    pub fn find(&self, wanted: &[Option<u8>]) -> Vec<Found> {
        let mut found = Vec::new();
        if wanted.is_empty() {
            return found;
        }
        for file in lock(&self.files).iter() {
            for (offset, bytes) in &file.bytes {
                for (at, _) in bytes
                    .windows(wanted.len())
                    .enumerate()
                    .filter(|(_, window)| is_like(window, wanted))
                {
                    if found.len() == FOUND_MAX {
                        return found;
                    }
                    let file = LostFile {
                        bytes: Vec::new(),
                        ..file.clone()
                    };
                    found.push(Found {
                        offset: offset + at as u64,
                        file,
                    });
                }
            }
        }
        found
    }
}

fn is_like(window: &[u8], wanted: &[Option<u8>]) -> bool {
    window
        .iter()
        .zip(wanted)
        .all(|(byte, wanted)| wanted.is_none_or(|wanted| wanted == *byte))
}
