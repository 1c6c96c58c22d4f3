//! Kafka's wire format: integers are big-endian, strings and arrays carry their length, a request begins with a header.
//!
//! Only the classic ("non-flexible") encoding is written here, with the few flexible pieces that the handshake needs. Every API
//! that this client uses has a non-flexible version that Kafka 2.3 and all later releases up to 4.x speak (KIP-896 removed only
//! older ones), so that one version of each is enough. Source: the Kafka protocol guide, "Protocol Primitive Types", KIP-482.
//!
//! The reader trusts nothing: a length is checked against the bytes that are there before anything is allocated or sliced.

use std::fmt;

/// An API of the Kafka protocol, with the one version of it that this client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Api {
    /// Name, for messages to people.
    pub name: &'static str,
    /// Number on the wire.
    pub key: i16,
    /// Version on the wire.
    pub version: i16,
}

impl Api {
    const fn new(name: &'static str, key: i16, version: i16) -> Api {
        Api { name, key, version }
    }
}

pub(crate) const PRODUCE: Api = Api::new("Produce", 0, 7);
pub(crate) const FETCH: Api = Api::new("Fetch", 1, 11);
pub(crate) const LIST_OFFSETS: Api = Api::new("ListOffsets", 2, 2);
pub(crate) const METADATA: Api = Api::new("Metadata", 3, 7);
pub(crate) const OFFSET_COMMIT: Api = Api::new("OffsetCommit", 8, 5);
pub(crate) const FIND_COORDINATOR: Api = Api::new("FindCoordinator", 10, 2);
pub(crate) const SASL_HANDSHAKE: Api = Api::new("SaslHandshake", 17, 1);
pub(crate) const SASL_AUTHENTICATE: Api = Api::new("SaslAuthenticate", 36, 1);
pub(crate) const API_VERSIONS: Api = Api::new("ApiVersions", 18, 3);
pub(crate) const API_VERSIONS_OLD: Api = Api::new("ApiVersions", 18, 0);
pub(crate) const CREATE_TOPICS: Api = Api::new("CreateTopics", 19, 4);
pub(crate) const DELETE_TOPICS: Api = Api::new("DeleteTopics", 20, 3);
pub(crate) const INIT_PRODUCER_ID: Api = Api::new("InitProducerId", 22, 1);
pub(crate) const OFFSET_FOR_LEADER_EPOCH: Api = Api::new("OffsetForLeaderEpoch", 23, 3);
pub(crate) const CREATE_PARTITIONS: Api = Api::new("CreatePartitions", 37, 0);
pub(crate) const DESCRIBE_CONFIGS: Api = Api::new("DescribeConfigs", 32, 1);

/// What the server sent does not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "an answer that does not follow the Kafka protocol ({})",
            self.0
        )
    }
}

impl std::error::Error for Malformed {}

const SHORT: Malformed = Malformed("it ends too early");

/// Appends values in wire format. A thin layer over a byte vector.
pub(crate) trait Put {
    fn put_i8(&mut self, value: i8);
    fn put_i16(&mut self, value: i16);
    fn put_i32(&mut self, value: i32);
    fn put_i64(&mut self, value: i64);
    /// A string of at most 32,767 bytes; longer ones are cut, which callers rule out beforehand.
    fn put_string(&mut self, value: &str);
    fn put_null_string(&mut self);
    /// The length of an array.
    fn put_count(&mut self, count: usize);
    /// A compact string (KIP-482) of fewer than 127 bytes.
    fn put_compact_short(&mut self, value: &str);
}

impl Put for Vec<u8> {
    fn put_i8(&mut self, value: i8) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_i16(&mut self, value: i16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_i32(&mut self, value: i32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_string(&mut self, value: &str) {
        let length = i16::try_from(value.len()).unwrap_or(i16::MAX);
        self.put_i16(length);
        self.extend_from_slice(&value.as_bytes()[..length.unsigned_abs().into()]);
    }

    fn put_null_string(&mut self) {
        self.put_i16(-1);
    }

    fn put_count(&mut self, count: usize) {
        self.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
    }

    fn put_compact_short(&mut self, value: &str) {
        let length = value.len().min(126);
        self.push(length as u8 + 1);
        self.extend_from_slice(&value.as_bytes()[..length]);
    }
}

/// Begins a request in an emptied buffer: four bytes for the length, then the header. `finish_request` fills the length in.
pub(crate) fn begin_request(out: &mut Vec<u8>, api: Api, correlation: i32, client_id: &str) {
    out.clear();
    out.put_i32(0);
    out.put_i16(api.key);
    out.put_i16(api.version);
    out.put_i32(correlation);
    out.put_string(client_id);
}

/// Fills in the length of a request whose bytes are those of `out` and `more` that are sent from elsewhere.
pub(crate) fn finish_request(out: &mut [u8], more: usize) {
    let length = i32::try_from(out.len() - 4 + more).unwrap_or(i32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
}

/// Reads values in wire format from a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Bytes read so far: the position in the frame.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        if length > self.left() {
            return Err(SHORT);
        }
        let taken = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let chunk = self.bytes[self.at..].first_chunk::<N>().ok_or(SHORT)?;
        self.at += N;
        Ok(*chunk)
    }

    pub fn skip(&mut self, length: usize) -> Result<(), Malformed> {
        self.take(length).map(|_| ())
    }

    pub fn i8(&mut self) -> Result<i8, Malformed> {
        self.array().map(i8::from_be_bytes)
    }

    pub fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.i8()? != 0)
    }

    pub fn i16(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// A string, or None for null.
    pub fn nullable_string(&mut self) -> Result<Option<&'a str>, Malformed> {
        let length = self.i16()?;
        if length < 0 {
            return Ok(None);
        }
        let bytes = self.take(usize::from(length.unsigned_abs()))?;
        std::str::from_utf8(bytes)
            .map(Some)
            .map_err(|_| Malformed("a string is not UTF-8"))
    }

    pub fn string(&mut self) -> Result<&'a str, Malformed> {
        self.nullable_string()?.ok_or(Malformed("a name is null"))
    }

    /// The length of an array whose elements take at least `element_bytes` each; null counts as empty.
    pub fn count(&mut self, element_bytes: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.i32()?.max(0)).unwrap_or(0);
        if count > self.left() / element_bytes.max(1) {
            return Err(Malformed("an array is longer than the answer"));
        }
        Ok(count)
    }

    /// An unsigned varint of at most 32 bits (KIP-482).
    pub fn unsigned_varint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array::<1>()?;
            value |= u32::from(byte & 0x7F).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("a varint does not end"))
    }

    /// The length of a compact array.
    pub fn compact_count(&mut self, element_bytes: usize) -> Result<usize, Malformed> {
        let count = self.unsigned_varint()?.saturating_sub(1) as usize;
        if count > self.left() / element_bytes.max(1) {
            return Err(Malformed("an array is longer than the answer"));
        }
        Ok(count)
    }

    pub fn compact_string(&mut self) -> Result<&'a str, Malformed> {
        let length = self.unsigned_varint()?.saturating_sub(1) as usize;
        std::str::from_utf8(self.take(length)?).map_err(|_| Malformed("a string is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_are_checked_before_they_are_believed() {
        let mut reader = Reader::new(&[0x7F, 0xFF, 0xFF, 0xFF, 1, 2]);
        assert!(reader.count(1).is_err());
        assert!(Reader::new(&[0x7F, 0xFF, 1]).string().is_err());
        assert!(
            Reader::new(&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 1])
                .compact_count(1)
                .is_err()
        );
        assert!(Reader::new(&[0xFF; 12]).unsigned_varint().is_err());
    }

    proptest! {
        #[test]
        fn values_are_read_as_written(a: i8, b: i16, c: i32, d: i64, text in "\\PC{0,60}") {
            let mut out = Vec::new();
            out.put_i8(a);
            out.put_i16(b);
            out.put_i32(c);
            out.put_i64(d);
            out.put_string(&text);
            out.put_null_string();
            let mut reader = Reader::new(&out);
            prop_assert_eq!((reader.i8(), reader.i16(), reader.i32(), reader.i64()), (Ok(a), Ok(b), Ok(c), Ok(d)));
            prop_assert_eq!(reader.string(), Ok(text.as_str()));
            prop_assert_eq!(reader.nullable_string(), Ok(None));
            prop_assert_eq!(reader.left(), 0);
        }
    }
}
