//! FUSE requests on a disk: translation only.
//!
//! The kernel's write-back cache stays off, so that every write arrives before it returns. What is changed through a shared
//! mapping arrives before the `FSYNC` that `msync` sends, or when the kernel writes it back by itself. Locks (`fcntl`, `flock`)
//! are the kernel's own.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use crate::disk::{Attr, Change, Disk, Make, Outcome, Pending};
use crate::lock;
use crate::node::Kind;
use crate::syncs::Syncs;

/// How long the kernel may believe names and attributes. Nobody else changes them, and a cut takes them back.
const BELIEF: Duration = Duration::from_secs(60);
/// Bytes of one write, at most.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel may send without waiting, such as reading ahead.
const BACKGROUND_REQUESTS: u16 = 64;
const BLOCK_BYTES: u32 = 4096;

/// A disk as a FUSE file system.
pub struct PowercutFs {
    disk: Arc<Disk>,
    syncs: Syncs,
}

impl PowercutFs {
    /// Serves `disk`; syncs that take time wait in `syncs`.
    pub fn new(disk: Arc<Disk>, syncs: Syncs) -> PowercutFs {
        PowercutFs { disk, syncs }
    }

    /// Answers when a sync is done.
    fn sync(&self, sync: Outcome<Pending>, answer: impl FnOnce(Outcome<()>) + Send + 'static) {
        let sync = match sync {
            Ok(sync) if !self.disk.is_instant(&sync) || self.disk.is_held() => sync,
            Ok(sync) => return answer(self.disk.finish_sync(&sync)),
            Err(error) => return answer(Err(error)),
        };
        let disk = Arc::clone(&self.disk);
        // When no thread can be had the answer is dropped, and fuser answers EIO for it.
        let _ = self.syncs.run(move || {
            let below = disk.sync_below(&sync);
            thread::sleep(sync.delay);
            answer(match below {
                Ok(()) => disk.finish_sync(&sync),
                Err(error) => {
                    disk.fail_sync(&sync, error);
                    Err(error)
                }
            });
        });
    }

    fn make(&self, request: &Request, kind: Kind, mode: u32, parent: INodeNo, name: &OsStr) -> Outcome<Attr> {
        let make = Make {
            kind,
            mode,
            uid: request.uid(),
            gid: request.gid(),
        };
        self.disk.stand(self.disk.make(parent.0, name, make))
    }
}

fn refusal(error: i32) -> Errno {
    Errno::from_i32(error)
}

fn file_type(kind: &Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::Special(libc::S_IFIFO, _) => FileType::NamedPipe,
        Kind::Special(libc::S_IFCHR, _) => FileType::CharDevice,
        Kind::Special(libc::S_IFBLK, _) => FileType::BlockDevice,
        Kind::Special(..) => FileType::Socket,
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.number),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: attr.attributes.atime,
        mtime: attr.attributes.mtime,
        ctime: attr.attributes.ctime,
        crtime: attr.attributes.ctime,
        kind: file_type(&attr.kind),
        perm: attr.attributes.mode as u16,
        nlink: attr.links,
        uid: attr.attributes.uid,
        gid: attr.attributes.gid,
        rdev: if let Kind::Special(_, device) = attr.kind {
            device
        } else {
            0
        },
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn entry(result: Outcome<Attr>, reply: ReplyEntry) {
    match result {
        Ok(attr) => reply.entry(&BELIEF, &file_attr(&attr), Generation(0)),
        Err(error) => reply.error(refusal(error)),
    }
}

fn attributes(result: Outcome<Attr>, reply: ReplyAttr) {
    match result {
        Ok(attr) => reply.attr(&BELIEF, &file_attr(&attr)),
        Err(error) => reply.error(refusal(error)),
    }
}

fn empty(result: Outcome<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(refusal(error)),
    }
}

fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

/// Blocks of the disk below: all, free, available.
fn blocks_below(path: &Path) -> Outcome<(u64, u64, u64)> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    let mut space = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a C string and the structure is written by the call before it is read.
    unsafe {
        if libc::statvfs(path.as_ptr(), space.as_mut_ptr()) != 0 {
            return Err(libc::EIO);
        }
        let space = space.assume_init();
        let scale = |blocks: u64| blocks.saturating_mul(space.f_frsize) / u64::from(BLOCK_BYTES);
        Ok((scale(space.f_blocks), scale(space.f_bfree), scale(space.f_bavail)))
    }
}

impl Filesystem for PowercutFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The nearest value that the kernel allows is as good.
        if let Err(nearest) = config.set_max_write(WRITE_BYTES_MAX) {
            let _ = config.set_max_write(nearest);
        }
        let _ = config.set_max_background(BACKGROUND_REQUESTS);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.disk.lookup(parent.0, name), reply);
    }

    fn forget(&self, _request: &Request, number: INodeNo, lookups: u64) {
        self.disk.forget(number.0, lookups);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        attributes(self.disk.attr(number.0), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(time),
            mtime: mtime.map(time),
        };
        attributes(self.disk.stand(self.disk.change(number.0, change)), reply);
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        use std::os::unix::ffi::OsStrExt;
        match self.disk.read_link(number.0) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG | 0 => Kind::File,
            special => Kind::Special(special, device),
        };
        entry(self.make(request, kind, mode, parent, name), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        entry(self.make(request, Kind::Directory, mode, parent, name), reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.disk.stand(self.disk.unlink(parent.0, name)), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.disk.remove_directory(parent.0, name), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let kind = Kind::Symlink(target.as_os_str().to_owned());
        entry(self.make(request, kind, 0o777, parent, name), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self
            .disk
            .rename((parent.0, name), (new_parent.0, new_name), flags.bits());
        empty(self.disk.stand(renamed), reply);
    }

    fn link(&self, _request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.disk.link(number.0, parent.0, name), reply);
    }

    fn open(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.disk.open(number.0) {
            // Nobody else changes the file, so what the kernel has cached stays true.
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self
            .make(request, Kind::File, mode, parent, name)
            .and_then(|attr| Ok((self.disk.open(attr.number)?, attr)));
        match created {
            Ok((handle, attr)) => reply.created(
                &BELIEF,
                &file_attr(&attr),
                Generation(0),
                FileHandle(handle),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buffer = vec![0; size as usize];
        match self.disk.read(handle.0, &mut buffer, offset) {
            Ok(count) => reply.data(&buffer[..count]),
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.disk.stand(self.disk.write(handle.0, offset, data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.disk.close(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let sync = self.disk.begin_sync(handle.0, data_only);
        self.sync(sync, move |result| empty(result, reply));
    }

    fn opendir(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.disk.open(number.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let handle = match self.disk.handle(handle.0) {
            Ok(handle) => handle,
            Err(error) => return reply.error(refusal(error)),
        };
        let mut listing = lock(&handle.listing);
        // A reader that starts (again) sees the directory as it is; one that goes on sees what it began with.
        if offset == 0 || listing.is_none() {
            match self.disk.list(number.0) {
                Ok(list) => *listing = Some(list),
                Err(error) => return reply.error(refusal(error)),
            }
        }
        let list = listing.iter().flatten().enumerate().skip(offset as usize);
        for (index, (name, number, kind)) in list {
            if reply.add(INodeNo(*number), index as u64 + 1, file_type(kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.disk.close(handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let sync = self.disk.begin_sync(handle.0, data_only);
        self.sync(sync, move |result| empty(result, reply));
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        let (used, limit) = self.disk.space();
        let block = u64::from(BLOCK_BYTES);
        let state = self.disk.settings.state.as_deref();
        let below = state.map_or(Err(libc::EIO), blocks_below);
        let (all, free, available) = match (limit, below) {
            (Some(limit), _) => {
                let free = limit.saturating_sub(used) / block;
                (limit / block, free, free)
            }
            (None, Ok(below)) => below,
            (None, Err(error)) => return reply.error(refusal(error)),
        };
        let names = u64::from(u32::MAX);
        reply.statfs(all, free, available, names, names, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        empty(self.disk.allocate(handle.0, mode, offset, length), reply);
    }
}
