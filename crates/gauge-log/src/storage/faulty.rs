//! A disk that its user neglects on purpose, for tests of experiments that must find it out (`--fault`).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::disk::{Access, Disk, DiskFile};
use super::mapping::Mapping;
use crate::settings::Fault;

/// A disk as one uses it who makes this fault.
#[derive(Debug)]
pub struct Faulty {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// What is done wrong.
    pub fault: Fault,
}

impl Faulty {
    fn forgets(&self) -> bool {
        self.fault == Fault::ForgetDirectorySync
    }
}

impl Disk for Faulty {
    fn make(&self) -> io::Result<()> {
        self.disk.make()
    }

    fn sync_own_name(&self) -> io::Result<()> {
        if self.forgets() {
            Ok(())
        } else {
            self.disk.sync_own_name()
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.open(name, access)?;
        match self.fault {
            Fault::IgnoreFailedSync => Ok(Box::new(Optimist(file))),
            _ => Ok(file),
        }
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.disk.write(name, content)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        if self.forgets() {
            Ok(())
        } else {
            self.disk.sync_names()
        }
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        self.disk.modified(name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }
}

/// A file whose user does not look at what a write or a sync says.
#[derive(Debug)]
struct Optimist(Box<dyn DiskFile>);

impl DiskFile for Optimist {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let _ = self.0.write_at(bytes, at);
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(bytes, at)
    }

    fn map(&self, at: u64, bytes: usize) -> Option<Mapping> {
        self.0.map(at, bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.0.set_bytes(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let _ = self.0.sync();
        Ok(())
    }

    fn start_write_back(&self, from: u64, to: u64) {
        self.0.start_write_back(from, to);
    }

    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
}
