//! Buffers for batches, in sizes that are powers of two, used again.
//!
//! A lane may have ten thousand partitions with a few hundred bytes each, or one with a megabyte: a batch begins in a buffer of
//! the size that the producer's last batch had, and moves to one of twice the size when it does not fit. What is free and kept is
//! bounded; what is in use is bounded by the batch policy.

/// The smallest buffer.
const SMALLEST_BYTES: usize = 512;
/// Sizes from 512 bytes to 1 GiB.
const CLASSES: usize = 22;

/// A pool of buffers. A buffer's length is its capacity: all of it is initialised, and used as a slice.
#[derive(Debug)]
pub(crate) struct Buffers {
    free: [Vec<Vec<u8>>; CLASSES],
    free_bytes: usize,
    free_bytes_max: usize,
}

fn class_of(bytes: usize) -> usize {
    let size = bytes.max(SMALLEST_BYTES).next_power_of_two();
    ((size.trailing_zeros() - SMALLEST_BYTES.trailing_zeros()) as usize).min(CLASSES - 1)
}

impl Buffers {
    /// A pool that keeps at most this many bytes for later use.
    pub fn new(free_bytes_max: usize) -> Buffers {
        Buffers {
            free: Default::default(),
            free_bytes: 0,
            free_bytes_max,
        }
    }

    /// A buffer of at least this size.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let class = class_of(bytes);
        match self.free[class].pop() {
            Some(buffer) => {
                self.free_bytes -= buffer.len();
                buffer
            }
            None => vec![0; SMALLEST_BYTES << class],
        }
    }

    /// Gives a buffer back.
    pub fn give(&mut self, buffer: Vec<u8>) {
        let bytes = buffer.len();
        if bytes >= SMALLEST_BYTES
            && bytes.is_power_of_two()
            && self.free_bytes + bytes <= self.free_bytes_max
        {
            self.free_bytes += bytes;
            self.free[class_of(bytes)].push(buffer);
        }
    }

    /// Replaces a buffer by one of at least `bytes` with the same first `used` bytes.
    pub fn grow(&mut self, buffer: &mut Vec<u8>, used: usize, bytes: usize) {
        let mut larger = self.take(bytes);
        larger[..used].copy_from_slice(&buffer[..used]);
        self.give(std::mem::replace(buffer, larger));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_what_is_kept_is_bounded() {
        let mut buffers = Buffers::new(4096);
        let small = buffers.take(1);
        assert_eq!(small.len(), 512);
        buffers.give(small);
        assert_eq!(buffers.free_bytes, 512);
        assert_eq!((buffers.take(300).len(), buffers.free_bytes), (512, 0));
        buffers.give(vec![0; 8192]);
        assert_eq!(buffers.free_bytes, 0, "too large to keep");
        let mut buffer = buffers.take(512);
        buffer[..3].copy_from_slice(b"abc");
        buffers.grow(&mut buffer, 3, 513);
        assert_eq!((buffer.len(), &buffer[..3]), (1024, b"abc".as_slice()));
    }
}
