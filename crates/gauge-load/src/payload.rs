//! Message bodies: a pool of templates, filled before the load begins, so that a message costs a copy and a stamp.

use crate::stamp::{STAMP_BYTES, tail_crc};

/// One message body. The first 32 bytes are overwritten by the stamp when the message is long enough to carry one.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Box<[u8]>,
    tail_crc: u32,
}

impl Template {
    /// A template of these bytes.
    pub fn new(bytes: Vec<u8>) -> Template {
        let tail_crc = tail_crc(bytes.get(STAMP_BYTES..).unwrap_or_default());
        Template {
            bytes: bytes.into_boxed_slice(),
            tail_crc,
        }
    }

    /// The body, with whatever the first bytes were before stamping.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// CRC-32C of the bytes after the stamp.
    #[inline]
    pub fn tail_crc(&self) -> u32 {
        self.tail_crc
    }

    /// Whether the body is long enough for a stamp.
    #[inline]
    pub fn is_stampable(&self) -> bool {
        self.bytes.len() >= STAMP_BYTES
    }
}

/// The bodies that a trial's messages take in turn. Never empty.
#[derive(Clone, Debug)]
pub struct PayloadPool {
    templates: Vec<Template>,
}

impl PayloadPool {
    /// `count` bodies of `size_bytes`, of which the share `random_ratio` (0 to 1) is random and the rest zero. The random part
    /// comes last, so that the stamp does not eat it.
    pub fn generate(size_bytes: usize, random_ratio: f64, count: usize, seed: u64) -> PayloadPool {
        PayloadPool {
            templates: bodies((0..count.max(1)).map(|_| size_bytes), random_ratio, seed),
        }
    }

    /// One body of each of these sizes, as `generate` makes them; None when there are none. Messages take them in turn, so that the sizes'
    /// distribution is that of the list, exactly, and a message costs no more than one of a fixed size.
    pub fn of_sizes(sizes_bytes: &[usize], random_ratio: f64, seed: u64) -> Option<PayloadPool> {
        let templates = bodies(sizes_bytes.iter().copied(), random_ratio, seed);
        (!templates.is_empty()).then_some(PayloadPool { templates })
    }

    /// A pool of given bodies; None when there are none.
    pub fn from_bodies(bodies: Vec<Vec<u8>>) -> Option<PayloadPool> {
        let templates: Vec<Template> = bodies.into_iter().map(Template::new).collect();
        (!templates.is_empty()).then_some(PayloadPool { templates })
    }

    /// The templates.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// Whether every message can carry a stamp, and so can be audited.
    pub fn is_stampable(&self) -> bool {
        self.templates.iter().all(Template::is_stampable)
    }

    /// Bytes of the longest body.
    pub fn size_bytes_max(&self) -> usize {
        self.templates
            .iter()
            .map(|template| template.bytes.len())
            .max()
            .unwrap_or(0)
    }
}

fn bodies(sizes_bytes: impl Iterator<Item = usize>, random_ratio: f64, seed: u64) -> Vec<Template> {
    let mut random = fastrand::Rng::with_seed(seed);
    let body = |size_bytes: usize| {
        let random_bytes =
            ((size_bytes as f64 * random_ratio.clamp(0.0, 1.0)).round() as usize).min(size_bytes);
        let mut bytes = vec![0; size_bytes];
        random.fill(&mut bytes[size_bytes - random_bytes..]);
        Template::new(bytes)
    };
    sizes_bytes.map(body).collect()
}
