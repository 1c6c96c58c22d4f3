//! The chunks that are in memory, within a fixed number of slots.
//!
//! The journal takes slots for new chunks, the reader of the past for chunks that it reads. A slot has a buffer, or a piece of the page cache takes its place. When none is free the chunk
//! that was not used for longest is dropped, those read from disk first while they take more than half of the memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::buffer::AlignedBuffer;
use super::chunk::{Chunk, Memory};

/// Room for one chunk, with what the chunk before had. It goes into a chunk, one way or the other, or back as a buffer.
#[derive(Debug)]
pub struct Slot(Option<Memory>);

impl Slot {
    /// With a buffer.
    pub fn into_buffer(self, chunk_bytes: usize) -> AlignedBuffer {
        match self.0 {
            Some(Memory::Own(buffer)) => buffer,
            Some(Memory::Mapped(_)) | None => AlignedBuffer::new(chunk_bytes),
        }
    }
}

/// The chunks in memory.
#[derive(Debug)]
pub struct ChunkCache {
    inner: Mutex<Inner>,
    uses: AtomicU64,
    chunk_bytes: usize,
}

#[derive(Debug)]
struct Inner {
    chunks: BTreeMap<u64, Arc<Chunk>>,
    free: Vec<AlignedBuffer>,
    slots_max: usize,
    slots_taken: usize,
    from_disk: usize,
}

impl ChunkCache {
    /// A cache of at most `slots_max` chunks of `chunk_bytes`.
    pub fn new(slots_max: usize, chunk_bytes: usize) -> Self {
        let inner = Inner {
            chunks: BTreeMap::new(),
            free: Vec::new(),
            slots_max,
            slots_taken: 0,
            from_disk: 0,
        };
        Self {
            inner: Mutex::new(inner),
            uses: AtomicU64::new(1),
            chunk_bytes,
        }
    }

    /// Bytes of a chunk's buffer.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chunk that begins at `start`, if it is in memory; counts as a use.
    pub fn get(&self, start: u64) -> Option<Arc<Chunk>> {
        let chunk = self.lock().chunks.get(&start).cloned()?;
        chunk
            .last_use
            .store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(chunk)
    }

    /// Whether a chunk is in memory; does not count as a use.
    pub fn contains(&self, start: u64) -> bool {
        self.lock().chunks.contains_key(&start)
    }

    /// A free slot, dropping a clean chunk when there is none; None when every slot holds something that is not on disk yet, or is being sent.
    /// A reader of the past (`for_disk`) leaves at least half of the slots to the journal.
    pub fn take_slot(&self, for_disk: bool) -> Option<Slot> {
        let mut inner = self.lock();
        let disk_share_taken = inner.from_disk * 2 >= inner.slots_max;
        if for_disk && disk_share_taken {
            return inner.evict(|chunk| chunk.from_disk);
        }
        if let Some(buffer) = inner.free.pop() {
            return Some(Slot(Some(Memory::Own(buffer))));
        }
        if inner.slots_taken < inner.slots_max {
            inner.slots_taken += 1;
            return Some(Slot(None));
        }
        if disk_share_taken && let Some(slot) = inner.evict(|chunk| chunk.from_disk) {
            return Some(slot);
        }
        inner.evict(|_| true)
    }

    /// A free slot with a buffer.
    pub fn take_buffer(&self, for_disk: bool) -> Option<AlignedBuffer> {
        Some(self.take_slot(for_disk)?.into_buffer(self.chunk_bytes))
    }

    /// Gives a buffer back.
    pub fn give_back(&self, buffer: AlignedBuffer) {
        self.lock().free.push(buffer);
    }

    /// Adds a chunk.
    pub fn insert(&self, chunk: Arc<Chunk>) {
        chunk
            .last_use
            .store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut inner = self.lock();
        inner.from_disk += usize::from(chunk.from_disk);
        let before = inner.chunks.insert(chunk.start, chunk);
        assert!(before.is_none(), "a chunk is in memory at most once");
    }

    /// Bytes of memory that the cache has taken so far, what it has mapped included.
    pub fn memory_bytes(&self) -> usize {
        self.lock().slots_taken * self.chunk_bytes
    }
}

impl Inner {
    /// Drops the least recently used clean chunk that `may_go` allows and that nobody is sending from; returns its slot.
    fn evict(&mut self, may_go: impl Fn(&Chunk) -> bool) -> Option<Slot> {
        let start = self
            .chunks
            .values()
            .filter(|chunk| Arc::strong_count(chunk) == 1 && chunk.is_clean() && may_go(chunk))
            .min_by_key(|chunk| chunk.last_use.load(Ordering::Relaxed))?
            .start;
        let chunk = self.chunks.remove(&start)?;
        self.from_disk -= usize::from(chunk.from_disk);
        // The map held the only reference, and nobody can have taken another while the lock is held.
        let chunk = Arc::into_inner(chunk).expect("the only reference");
        // What it had mapped goes when nobody is kept by the lock.
        Some(Slot(Some(chunk.into_memory())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::chunk::CHUNK_BYTES;

    fn chunk(cache: &ChunkCache, start: u64, from_disk: bool) -> Option<Arc<Chunk>> {
        let memory = Memory::Own(cache.take_buffer(from_disk)?);
        let chunk = Arc::new(Chunk::new(start, memory, from_disk));
        cache.insert(Arc::clone(&chunk));
        Some(chunk)
    }

    #[test]
    fn memory_is_bounded_and_unwritten_chunks_are_never_dropped() {
        let cache = ChunkCache::new(2, CHUNK_BYTES);
        let first = chunk(&cache, 0, false).unwrap();
        drop(chunk(&cache, 4096, false).unwrap());
        assert!(cache.take_buffer(false).is_none());
        first.clean.store(true, Ordering::Release);
        assert!(
            cache.take_buffer(false).is_none(),
            "a chunk that is in use was dropped"
        );
        drop(first);
        assert!(cache.take_buffer(false).is_some());
        assert!(!cache.contains(0) && cache.contains(4096));
        assert_eq!(cache.memory_bytes(), 2 * CHUNK_BYTES);
    }

    #[test]
    fn readers_of_the_past_leave_half_of_the_memory_to_the_tail() {
        let cache = ChunkCache::new(4, CHUNK_BYTES);
        for start in 0..10 {
            drop(chunk(&cache, start * 4096, true).unwrap());
        }
        assert_eq!(cache.memory_bytes(), 2 * CHUNK_BYTES);
    }
}
