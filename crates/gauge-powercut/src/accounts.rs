//! Counters by class of files, and a record of every write and sync.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Mutex;

use gauge_load::clock::monotonic_ns;
use serde_json::{Map, Value, json};

use crate::lock;

/// What was done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Deed {
    /// Bytes were written.
    Write = 1,
    /// The file was synced; the length says how many un-synced bytes became durable.
    Sync = 2,
    /// A directory was synced.
    SyncDirectory = 3,
    /// It was created.
    Create = 4,
    /// It was renamed.
    Rename = 5,
    /// A name of it was removed.
    Unlink = 6,
    /// Its size was set to the offset.
    Truncate = 7,
}

impl Deed {
    /// Every deed with its name, for commands.
    pub const NAMES: [(Deed, &str); 7] = [
        (Deed::Write, "write"),
        (Deed::Sync, "sync"),
        (Deed::SyncDirectory, "directory-sync"),
        (Deed::Create, "create"),
        (Deed::Rename, "rename"),
        (Deed::Unlink, "unlink"),
        (Deed::Truncate, "truncate"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let named = Deed::NAMES.iter().find(|(deed, _)| *deed == self);
        named.map_or("", |(_, name)| name)
    }
}

/// One thing that was done.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When the request arrived, `CLOCK_MONOTONIC`.
    pub start_ns: i64,
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Which file.
    pub id: u64,
    /// What.
    pub deed: Deed,
    /// Index of the file's class.
    pub class: u16,
    /// 0, or the error as an errno.
    pub error: i32,
}

#[derive(Clone, Debug, Default)]
struct Counters {
    writes: u64,
    bytes_written: u64,
    syncs: u64,
    syncs_failed: u64,
    bytes_synced: u64,
    sync_ns_sum: u64,
    sync_ns_max: u64,
    directory_syncs: u64,
    creates: u64,
    renames: u64,
    unlinks: u64,
    truncates: u64,
}

impl Counters {
    fn count(&mut self, event: &Event, end_ns: i64) {
        let failed = event.error != 0;
        match event.deed {
            Deed::Write if !failed => {
                self.writes += 1;
                self.bytes_written += event.length;
            }
            Deed::Sync if failed => self.syncs_failed += 1,
            Deed::Sync => {
                let took = u64::try_from(end_ns - event.start_ns).unwrap_or(0);
                self.syncs += 1;
                self.bytes_synced += event.length;
                self.sync_ns_sum += took;
                self.sync_ns_max = self.sync_ns_max.max(took);
            }
            Deed::SyncDirectory => self.directory_syncs += 1,
            Deed::Create => self.creates += 1,
            Deed::Rename => self.renames += 1,
            Deed::Unlink => self.unlinks += 1,
            Deed::Truncate => self.truncates += 1,
            Deed::Write => {}
        }
    }

    /// What was added since `before`; the maximum is the one since the start, because maxima do not subtract.
    fn since(&self, before: &Counters) -> Value {
        json!({
            "writes": self.writes - before.writes,
            "bytes_written": self.bytes_written - before.bytes_written,
            "syncs": self.syncs - before.syncs,
            "syncs_failed": self.syncs_failed - before.syncs_failed,
            "bytes_synced": self.bytes_synced - before.bytes_synced,
            "sync_ns_sum": self.sync_ns_sum - before.sync_ns_sum,
            "sync_ns_max": self.sync_ns_max,
            "directory_syncs": self.directory_syncs - before.directory_syncs,
            "creates": self.creates - before.creates,
            "renames": self.renames - before.renames,
            "unlinks": self.unlinks - before.unlinks,
            "truncates": self.truncates - before.truncates,
        })
    }
}

#[derive(Debug)]
struct Mark {
    at_ns: i64,
    counters: Vec<Counters>,
}

#[derive(Debug)]
struct Books {
    counters: Vec<Counters>,
    marks: Vec<Mark>,
    record: Option<BufWriter<File>>,
    names: Option<BufWriter<File>>,
}

/// The books of one file system.
#[derive(Debug)]
pub struct Accounts {
    classes: Vec<String>,
    books: Mutex<Books>,
}

impl Accounts {
    /// Books with these classes (`other` is added), which also write to `record` and `record.names` when there is a path.
    ///
    /// # Errors
    /// Those of creating the files.
    pub fn open(classes: impl Iterator<Item = String>, record: Option<&Path>) -> io::Result<Accounts> {
        let classes: Vec<String> = classes.chain(["other".to_owned()]).collect();
        let create = |path: &Path| File::create(path).map(BufWriter::new);
        let names = record.map(|path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".names");
            name
        });
        let counters = vec![Counters::default(); classes.len()];
        let start = Mark {
            at_ns: monotonic_ns(),
            counters: counters.clone(),
        };
        let books = Mutex::new(Books {
            counters,
            marks: vec![start],
            record: record.map(create).transpose()?,
            names: names.map(|name| create(Path::new(&name))).transpose()?,
        });
        Ok(Accounts { classes, books })
    }

    /// Enters an event that ends now. A full disk loses records, never the file system.
    pub fn enter(&self, event: &Event) {
        let mut books = lock(&self.books);
        // Taken under the lock, so that records are in the order of their ends.
        let end_ns = monotonic_ns();
        if let Some(counters) = books.counters.get_mut(usize::from(event.class)) {
            counters.count(event, end_ns);
        }
        if let Some(record) = &mut books.record {
            let mut bytes = [0; 48];
            bytes[0..8].copy_from_slice(&event.start_ns.to_le_bytes());
            bytes[8..16].copy_from_slice(&end_ns.to_le_bytes());
            bytes[16..24].copy_from_slice(&event.offset.to_le_bytes());
            bytes[24..32].copy_from_slice(&event.length.to_le_bytes());
            bytes[32..40].copy_from_slice(&event.id.to_le_bytes());
            bytes[40..42].copy_from_slice(&(event.deed as u16).to_le_bytes());
            bytes[42..44].copy_from_slice(&event.class.to_le_bytes());
            bytes[44..48].copy_from_slice(&event.error.to_le_bytes());
            let _ = record.write_all(&bytes);
        }
    }

    /// Notes the path of a file.
    pub fn name(&self, id: u64, path: &str) {
        if let Some(names) = &mut lock(&self.books).names {
            let line = json!({"id": id, "path": path, "monotonic_ns": monotonic_ns()});
            let _ = writeln!(names, "{line}");
        }
    }

    /// Hands what was recorded to the kernel.
    pub fn flush(&self) {
        let mut books = lock(&self.books);
        if let Some(record) = &mut books.record {
            let _ = record.flush();
        }
        if let Some(names) = &mut books.names {
            let _ = names.flush();
        }
    }

    /// The counters since mark `since` (0: the start), with a new mark; `None` without such a mark.
    pub fn report(&self, since: usize) -> Option<Map<String, Value>> {
        self.flush();
        let mut books = lock(&self.books);
        let before = books.marks.get(since)?;
        let classes: Map<String, Value> = self
            .classes
            .iter()
            .zip(books.counters.iter().zip(&before.counters))
            .map(|(name, (now, before))| (name.clone(), now.since(before)))
            .collect();
        let mut report = Map::new();
        report.insert("since_ns".to_owned(), json!(before.at_ns));
        report.insert("mark".to_owned(), json!(books.marks.len()));
        report.insert("classes".to_owned(), Value::Object(classes));
        let mark = Mark {
            at_ns: monotonic_ns(),
            counters: books.counters.clone(),
        };
        books.marks.push(mark);
        Some(report)
    }
}
