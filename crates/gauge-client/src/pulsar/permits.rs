//! How far a broker may send ahead. Pulsar counts messages, and memory and the network count bytes, so permits follow the size of the
//! messages seen last.

/// Permits per partition.
const PERMITS_MIN: u64 = 16;
const PERMITS_MAX: u64 = 1_000_000;

/// What a consumer allows each of its partitions.
#[derive(Debug)]
pub(super) struct Window {
    bytes: u64,
    /// Bytes of a message, a running mean.
    message_bytes: u64,
}

impl Window {
    /// `bytes` over all partitions. `message_bytes` is believed until there is a message.
    pub fn new(bytes: u64, partitions: usize, message_bytes: u64) -> Window {
        Window {
            bytes: bytes / partitions.max(1) as u64,
            message_bytes: message_bytes.max(64),
        }
    }

    /// An entry of this size was received.
    #[inline]
    pub fn see(&mut self, bytes: usize, messages: u32) {
        let mean = bytes as u64 / u64::from(messages.max(1));
        self.message_bytes = ((self.message_bytes * 7 + mean) / 8).max(1);
    }

    fn permits(&self) -> i64 {
        (self.bytes / self.message_bytes).clamp(PERMITS_MIN, PERMITS_MAX) as i64
    }
}

/// What a partition's broker may still send, in messages. Below zero when a batch was larger than what was left, which the broker sends
/// whole and counts whole.
#[derive(Debug, Default)]
pub(super) struct Permits {
    left: i64,
    granted: i64,
}

impl Permits {
    /// The broker may send something.
    pub fn are_left(&self) -> bool {
        self.left > 0
    }

    /// A new consumer begins with none.
    pub fn clear(&mut self) {
        *self = Permits::default();
    }

    /// The broker has sent messages.
    #[inline]
    pub fn take(&mut self, messages: u32) {
        self.left -= i64::from(messages);
    }

    /// When half of what was granted is used: how many to grant, so that the window is open again.
    #[inline]
    pub fn renew(&mut self, window: &Window) -> Option<u32> {
        let target = window.permits();
        if self.left > self.granted / 2 || self.left >= target {
            return None;
        }
        let more = target - self.left;
        (self.left, self.granted) = (target, target);
        Some(u32::try_from(more).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_follow_the_size_of_messages() {
        let mut window = Window::new(1 << 20, 4, 1 << 10);
        assert_eq!(window.permits(), 256);
        for _ in 0..100 {
            window.see(100 * 50, 50);
        }
        assert!(
            (2600..=2700).contains(&window.permits()),
            "a quarter of a MiB of 100 bytes each"
        );
        window.see(1 << 30, 1);
        assert_eq!(
            window.permits(),
            PERMITS_MIN as i64,
            "a huge message closes the window, but never wholly"
        );
        assert_eq!(Window::new(1 << 40, 1, 0).permits(), PERMITS_MAX as i64);
    }

    #[test]
    fn permits_are_renewed_when_half_of_them_is_used() {
        let window = Window::new(100 * 1000, 1, 1000);
        let mut permits = Permits::default();
        assert_eq!(permits.renew(&window), Some(100));
        assert_eq!(permits.renew(&window), None);
        permits.take(49);
        assert_eq!(permits.renew(&window), None);
        permits.take(1);
        assert_eq!(permits.renew(&window), Some(50));
        // The broker sends a batch whole, although fewer permits are left.
        permits.take(130);
        assert!(!permits.are_left());
        assert_eq!(permits.renew(&window), Some(130));
        permits.clear();
        assert_eq!(permits.renew(&window), Some(100));
    }

    #[test]
    fn a_window_that_shrinks_is_not_renewed_early() {
        let mut permits = Permits::default();
        assert_eq!(permits.renew(&Window::new(100 * 1000, 1, 1000)), Some(100));
        permits.take(60);
        let smaller = Window::new(20 * 1000, 1, 1000);
        assert_eq!(
            permits.renew(&smaller),
            None,
            "40 are left and 20 would be enough"
        );
        permits.take(25);
        assert_eq!(permits.renew(&smaller), Some(5));
    }
}
