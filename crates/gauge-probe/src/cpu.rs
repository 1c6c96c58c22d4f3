//! What one core does: copying memory, and checksumming as the protocols do (CRC-32C).
//!
//! Rates are per second of the thread's CPU time: the rate of one core, whether or not a neighbour had it for a while.

use std::hint::black_box;
use std::time::Duration;

use crate::clock;
use crate::error::ProbeError;
use crate::report::{Cpu, rounded};

/// Two of them are larger than the caches of most processors, so that the copy goes through memory as a broker's payload does.
const COPY_BYTES: usize = 64 << 20;
/// Fits into a core's own cache, as a record batch does.
const CHECKSUM_BYTES: usize = 256 << 10;

/// Measures both rates, each for `duration` of CPU time.
pub fn measure(duration: Duration) -> Result<Cpu, ProbeError> {
    Ok(Cpu {
        memcpy_mb_s: copy_mb_s(duration)?,
        crc32c_mb_s: checksum_mb_s(duration),
    })
}

fn copy_mb_s(duration: Duration) -> Result<f64, ProbeError> {
    let source = touched(COPY_BYTES, 0x5a)?;
    let mut target = touched(COPY_BYTES, 0)?;
    Ok(rate_mb_s(duration, COPY_BYTES, || {
        target.copy_from_slice(black_box(&source));
        black_box(&target);
    }))
}

fn checksum_mb_s(duration: Duration) -> f64 {
    let data = vec![0xa5u8; CHECKSUM_BYTES];
    rate_mb_s(duration, CHECKSUM_BYTES, || {
        black_box(crc32c::crc32c(black_box(&data)));
    })
}

/// A buffer whose pages exist, so that page faults are not measured. Running out of memory is an error and not an abort.
fn touched(length: usize, value: u8) -> Result<Vec<u8>, ProbeError> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(length).map_err(|_| {
        ProbeError::Machine(format!(
            "the probe could not get {} MiB of memory to copy",
            length >> 20
        ))
    })?;
    // The value is hidden from the compiler: a fill with a known zero may become memory that is mapped at the first write only.
    buffer.resize(length, black_box(value));
    Ok(buffer)
}

/// Repeats `work`, which handles `bytes` bytes, for `duration` of CPU time. One repetition goes before, unmeasured, to warm the caches.
fn rate_mb_s(duration: Duration, bytes: usize, mut work: impl FnMut()) -> f64 {
    work();
    let limit_ns = clock::nanoseconds(duration);
    let start_ns = clock::thread_cpu_ns();
    let mut repetitions = 0u64;
    loop {
        work();
        repetitions += 1;
        let spent_ns = clock::thread_cpu_ns() - start_ns;
        if spent_ns >= limit_ns {
            return rounded(
                repetitions as f64 * bytes as f64 / 1e6 / (spent_ns as f64 / 1e9),
                0,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rates_are_positive() {
        let cpu = measure(Duration::from_millis(5)).unwrap();
        assert!(cpu.memcpy_mb_s > 10.0, "{cpu:?}");
        assert!(cpu.crc32c_mb_s > 10.0, "{cpu:?}");
    }
}
