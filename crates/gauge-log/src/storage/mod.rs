//! Where batches are kept: one journal for all partitions, in segment files, with its tail and what is being read of its past in memory.

pub mod buffer;
pub mod cache;
pub mod chunk;
pub mod disk;
pub mod entry;
pub mod faulty;
pub mod journal;
pub mod mapping;
pub mod segment;
