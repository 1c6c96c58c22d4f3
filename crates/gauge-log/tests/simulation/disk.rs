//! The simulated disk below a log: gauge-powercut's, in memory, with faults at a chosen operation.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use gauge_log::storage::buffer::BLOCK_BYTES;
use gauge_log::storage::disk::{Access, Disk, DiskFile};
use gauge_log::storage::mapping::Mapping;
use gauge_powercut::accounts::Accounts;
use gauge_powercut::disk::{Change, Disk as Powercut, Make, Metadata, Settings};
use gauge_powercut::node::Kind;
use gauge_powercut::rules::Rules;
use gauge_powercut::survive::Survive;
use gauge_powercut::tree::ROOT;

/// The data directory's name on the disk.
const DIRECTORY: &str = "data";

/// What is to happen to the process, and what has.
#[derive(Debug, Default)]
struct Plan {
    /// Operations so far.
    operations: u64,
    /// The operation at which the process dies; it may have its effect in part.
    dies_at: Option<u64>,
    /// The operation that fails, and its errno.
    fails_at: Option<(u64, i32)>,
    /// The process is dead: nothing that it still does has an effect.
    is_dead: bool,
    /// An operation has failed as planned.
    has_failed: bool,
    /// There is no room: nothing is written, and no file made.
    is_full: bool,
}

/// How an operation goes.
enum Fate {
    /// As it should.
    Works,
    /// This part of it (of 4) happens, and then the error.
    Fails(u64, io::Error),
}

/// A disk that loses power and fails.
#[derive(Debug, Clone)]
pub struct Simulated {
    disk: Arc<Powercut>,
    plan: Arc<Mutex<Plan>>,
}

fn errno(error: i32) -> io::Error {
    io::Error::from_raw_os_error(error)
}

impl Simulated {
    pub fn new(metadata: Metadata) -> Self {
        let settings = Settings {
            state: None,
            metadata,
            write_back: None,
            commit: None,
            sync_through: false,
        };
        let accounts = Accounts::open(std::iter::empty(), None).unwrap();
        let disk = Powercut::new(settings, Rules::default(), accounts, 0, 0).unwrap();
        Self {
            disk: Arc::new(disk),
            plan: Arc::default(),
        }
    }

    /// A process begins, with what is to happen to it after so many operations.
    pub fn begin(&self, dies_after: Option<u64>, fails_after: Option<(u64, i32)>) {
        *self.plan.lock().unwrap() = Plan {
            dies_at: dies_after,
            fails_at: fails_after,
            ..Plan::default()
        };
    }

    /// From now on as planned here, counted from now.
    pub fn plan(&self, dies_after: Option<u64>, fails_after: Option<(u64, i32)>) {
        let mut plan = self.plan.lock().unwrap();
        let now = plan.operations;
        plan.dies_at = dies_after.map(|after| now + after);
        plan.fails_at = fails_after.map(|(after, error)| (now + after, error));
    }

    /// There is no room from now on.
    pub fn fill(&self) {
        self.plan.lock().unwrap().is_full = true;
    }

    fn room(&self) -> Result<(), i32> {
        match self.plan.lock().unwrap().is_full {
            true => Err(libc::ENOSPC),
            false => Ok(()),
        }
    }

    /// The process is dead from now on.
    pub fn kill(&self) {
        self.plan.lock().unwrap().is_dead = true;
    }

    /// Whether what went wrong was planned.
    pub fn was_planned(&self) -> bool {
        let plan = self.plan.lock().unwrap();
        plan.is_dead || plan.has_failed
    }

    pub fn is_dead(&self) -> bool {
        self.plan.lock().unwrap().is_dead
    }

    /// The power goes and comes back.
    pub fn cut_power(&self, survive: Survive, names: bool) {
        self.disk.cut(survive, names).unwrap();
        self.disk.power_on().unwrap();
    }

    fn fate(&self) -> Fate {
        let mut plan = self.plan.lock().unwrap();
        if plan.is_dead {
            return Fate::Fails(0, errno(libc::EIO));
        }
        plan.operations += 1;
        let part = plan.operations * 7 % 5;
        if plan.dies_at == Some(plan.operations) {
            plan.is_dead = true;
            return Fate::Fails(part, errno(libc::EIO));
        }
        match plan.fails_at {
            Some((at, error)) if at == plan.operations => {
                plan.has_failed = true;
                Fate::Fails(part, errno(error))
            }
            _ => Fate::Works,
        }
    }

    /// An operation that happens as a whole: before the process dies, or not.
    fn whole<T>(&self, run: impl FnOnce() -> Result<T, i32>) -> io::Result<T> {
        match self.fate() {
            Fate::Works => run().map_err(errno),
            Fate::Fails(part, error) => {
                if part >= 2 && self.is_dead() {
                    let _ = run();
                }
                Err(error)
            }
        }
    }

    fn directory(&self) -> Result<u64, i32> {
        Ok(self.disk.lookup(ROOT, OsStr::new(DIRECTORY))?.number)
    }

    fn find(&self, name: &str) -> Result<u64, i32> {
        Ok(self.disk.lookup(self.directory()?, OsStr::new(name))?.number)
    }

    fn with_handle<T>(&self, number: u64, run: impl FnOnce(u64) -> Result<T, i32>) -> Result<T, i32> {
        let handle = self.disk.open(number)?;
        let done = run(handle);
        self.disk.close(handle);
        done
    }

    fn sync_handle(&self, handle: u64) -> Result<(), i32> {
        let pending = self.disk.begin_sync(handle, false)?;
        self.disk.finish_sync(&pending)
    }

    fn make_file(&self, name: &str) -> Result<u64, i32> {
        match self.find(name) {
            Err(libc::ENOENT) => {
                self.room()?;
                let make = Make {
                    kind: Kind::File,
                    mode: 0o600,
                    uid: 0,
                    gid: 0,
                };
                Ok(self.disk.make(self.directory()?, OsStr::new(name), make)?.number)
            }
            found => found,
        }
    }

    // ---- behind the log's back ----

    /// A file's content; None when it is not there.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let number = self.find(name).ok()?;
        let mut bytes = vec![0; self.disk.attr(number).ok()?.size as usize];
        let read = self.with_handle(number, |handle| self.disk.read(handle, &mut bytes, 0));
        read.ok().map(|_| bytes)
    }

    pub fn names(&self) -> Vec<String> {
        let entries = self.disk.list(self.directory().unwrap()).unwrap();
        let names = entries
            .into_iter()
            .filter_map(|(name, ..)| name.into_string().ok());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// Overwrites durable bytes.
    pub fn corrupt(&self, name: &str, at: u64, bytes: &[u8]) {
        self.disk.corrupt(self.find(name).unwrap(), at, bytes).unwrap();
    }
}

impl Disk for Simulated {
    fn make(&self) -> io::Result<()> {
        self.whole(|| match self.directory() {
            Err(libc::ENOENT) => {
                let make = Make {
                    kind: Kind::Directory,
                    mode: 0o700,
                    uid: 0,
                    gid: 0,
                };
                self.disk.make(ROOT, OsStr::new(DIRECTORY), make).map(drop)
            }
            found => found.map(drop),
        })
    }

    fn sync_own_name(&self) -> io::Result<()> {
        self.whole(|| self.with_handle(ROOT, |handle| self.sync_handle(handle)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.whole(|| Ok(self.names()))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let handle = self.whole(|| self.disk.open(self.make_file(name)?))?;
        Ok(Box::new(SimulatedFile {
            simulated: self.clone(),
            name: name.to_owned(),
            number: self.disk.handle(handle).map_err(errno)?.node.number(),
            handle,
            access,
        }))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.whole(|| {
            self.find(name)?;
            self.content(name).ok_or(libc::EIO)
        })
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let number = self.whole(|| self.make_file(name))?;
        let size = Change {
            size: Some(0),
            ..Change::default()
        };
        self.whole(|| self.disk.change(number, size).map(drop))?;
        self.room().map_err(errno)?;
        let write = |bytes: &[u8]| self.with_handle(number, |handle| self.disk.write(handle, 0, bytes));
        match self.fate() {
            Fate::Works => write(content).map_err(errno)?,
            Fate::Fails(part, error) => {
                let _ = write(&content[..content.len() * part as usize / 4]);
                return Err(error);
            }
        }
        self.whole(|| self.with_handle(number, |handle| self.sync_handle(handle)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.whole(|| {
            let directory = self.directory()?;
            self.disk
                .rename((directory, OsStr::new(from)), (directory, OsStr::new(to)), 0)
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.whole(|| self.disk.unlink(self.directory()?, OsStr::new(name)))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.whole(|| self.with_handle(self.directory()?, |handle| self.sync_handle(handle)))
    }

    fn modified(&self, _name: &str) -> io::Result<SystemTime> {
        Ok(SystemTime::now())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(DIRECTORY).join(name)
    }
}

#[derive(Debug)]
struct SimulatedFile {
    simulated: Simulated,
    name: String,
    number: u64,
    handle: u64,
    access: Access,
}

impl SimulatedFile {
    /// A device takes whole blocks from memory that is aligned to them.
    fn check(&self, memory: *const u8, bytes: usize, at: u64) -> io::Result<()> {
        let whole = |number: usize| number.is_multiple_of(BLOCK_BYTES);
        if self.access == Access::Cached || (whole(memory as usize) && whole(bytes) && whole(at as usize)) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{}: {bytes} bytes at {at} of {memory:?} are not whole blocks",
            self.name
        )))
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.check(bytes.as_ptr(), bytes.len(), at)?;
        self.simulated.room().map_err(errno)?;
        let disk = &self.simulated.disk;
        match self.simulated.fate() {
            Fate::Works => disk.write(self.handle, at, bytes).map_err(errno)?,
            Fate::Fails(part, error) => {
                let part = bytes.len() * part.min(4) as usize / 4;
                let _ = disk.write(self.handle, at, &bytes[..part]);
                return Err(error);
            }
        }
        if self.access != Access::Synced {
            return Ok(());
        }
        // Between the two the data is on its way to the device, all of it or a part.
        self.simulated.whole(|| self.simulated.sync_handle(self.handle))
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.check(bytes.as_ptr(), bytes.len(), at)?;
        self.simulated
            .whole(|| self.simulated.disk.read(self.handle, bytes, at))
    }

    fn map(&self, _at: u64, _bytes: usize) -> Option<Mapping> {
        None
    }

    fn bytes(&self) -> io::Result<u64> {
        let attr = self.simulated.disk.attr(self.number).map_err(errno)?;
        Ok(attr.size)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let size = Change {
            size: Some(bytes),
            ..Change::default()
        };
        self.simulated
            .whole(|| self.simulated.disk.change(self.number, size).map(drop))
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.simulated.room().map_err(errno)?;
        self.simulated
            .whole(|| self.simulated.disk.allocate(self.handle, 0, 0, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.simulated.whole(|| self.simulated.sync_handle(self.handle))
    }

    fn start_write_back(&self, _from: u64, _to: u64) {}

    fn is_direct(&self) -> bool {
        self.access != Access::Cached
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.simulated.disk.close(self.handle);
    }
}
