//! The primitive types of Kafka's wire protocol, read from and written to flat buffers.
//!
//! Source: the protocol guide (<https://kafka.apache.org/protocol.html>, "Protocol Primitive Types") and KIP-482 (flexible versions:
//! compact lengths and tagged fields). Reading never allocates and never trusts a length: an array's length is checked
//! against the bytes that are left before anything is reserved for it, so that a frame of a few bytes cannot ask for gigabytes.

/// A frame that does not hold what its API and version say it must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "malformed frame: {}", self.0)
    }
}

/// The outcome of reading one field.
pub type Read<T> = Result<T, Malformed>;

/// Reads fields in order from one frame.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    flexible: bool,
    /// Elements that arrays may still have in all.
    elements_left: usize,
}

/// Elements that the arrays of one request may have in all: several times what a log can hold partitions, so that what is made of a request is bounded in memory and time,
/// however short its elements are.
pub const REQUEST_ELEMENTS_MAX: usize = 500_000;

/// Names that one request may have beyond those that there are.
const NAMES_FREE: usize = 10_000;

/// Refuses a request that asks about more things by name than there are: it names the same again and again, and everybody else would wait for its answer.
pub fn check_names(asked: usize, known: usize) -> Read<()> {
    match asked <= known + NAMES_FREE {
        true => Ok(()),
        false => Err(Malformed("it names far more than there is")),
    }
}

impl<'a> Reader<'a> {
    /// A reader over a frame's bytes; `flexible` selects compact lengths and tagged fields (KIP-482).
    pub fn new(bytes: &'a [u8], flexible: bool) -> Self {
        Self {
            bytes,
            flexible,
            elements_left: usize::MAX,
        }
    }

    /// As `new`, for a request: its arrays may have `REQUEST_ELEMENTS_MAX` elements in all.
    pub fn of_request(bytes: &'a [u8]) -> Self {
        Self {
            elements_left: REQUEST_ELEMENTS_MAX,
            ..Self::new(bytes, false)
        }
    }

    /// Switches between the plain and the flexible encoding; a request's header decides what its body uses.
    pub fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    /// Bytes that were not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// The next `count` bytes as they are.
    pub fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        if count > self.bytes.len() {
            return Err(Malformed("it ends inside a field"));
        }
        let (head, tail) = self.bytes.split_at(count);
        self.bytes = tail;
        Ok(head)
    }

    fn array_of<const N: usize>(&mut self) -> Read<[u8; N]> {
        let bytes = self.take(N)?;
        let mut array = [0u8; N];
        array.copy_from_slice(bytes);
        Ok(array)
    }

    /// INT8.
    pub fn i8(&mut self) -> Read<i8> {
        Ok(i8::from_be_bytes(self.array_of()?))
    }

    /// INT16.
    pub fn i16(&mut self) -> Read<i16> {
        Ok(i16::from_be_bytes(self.array_of()?))
    }

    /// INT32.
    pub fn i32(&mut self) -> Read<i32> {
        Ok(i32::from_be_bytes(self.array_of()?))
    }

    /// INT64.
    pub fn i64(&mut self) -> Read<i64> {
        Ok(i64::from_be_bytes(self.array_of()?))
    }

    /// BOOLEAN; any byte but zero is true.
    pub fn bool(&mut self) -> Read<bool> {
        Ok(self.i8()? != 0)
    }

    /// UUID as its 16 bytes.
    pub fn uuid(&mut self) -> Read<[u8; 16]> {
        self.array_of()
    }

    /// UNSIGNED_VARINT, at most five bytes.
    pub fn varint(&mut self) -> Read<u32> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.array_of::<1>()?[0];
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("a variable-length integer is longer than five bytes"))
    }

    /// The length of a string, byte field or array; None is null.
    fn length(&mut self, plain_is_16_bit: bool) -> Read<Option<usize>> {
        if self.flexible {
            return Ok(self.varint()?.checked_sub(1).map(|length| length as usize));
        }
        let length = if plain_is_16_bit {
            i32::from(self.i16()?)
        } else {
            self.i32()?
        };
        match length {
            -1 => Ok(None),
            length if length < 0 => Err(Malformed("a length is negative")),
            length => Ok(Some(length as usize)),
        }
    }

    /// NULLABLE_STRING or COMPACT_NULLABLE_STRING.
    pub fn nullable_string(&mut self) -> Read<Option<&'a str>> {
        let Some(length) = self.length(true)? else {
            return Ok(None);
        };
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map(Some)
            .map_err(|_| Malformed("a string is not UTF-8"))
    }

    /// STRING or COMPACT_STRING.
    pub fn string(&mut self) -> Read<&'a str> {
        self.nullable_string()?
            .ok_or(Malformed("a string that must be there is null"))
    }

    /// NULLABLE_BYTES or COMPACT_NULLABLE_BYTES (RECORDS has the same form).
    pub fn nullable_bytes(&mut self) -> Read<Option<&'a [u8]>> {
        let Some(length) = self.length(false)? else {
            return Ok(None);
        };
        self.take(length).map(Some)
    }

    /// BYTES or COMPACT_BYTES.
    pub fn bytes(&mut self) -> Read<&'a [u8]> {
        self.nullable_bytes()?
            .ok_or(Malformed("a byte field that must be there is null"))
    }

    /// The length of an array whose elements take at least `element_bytes_min` bytes each; None is null.
    pub fn nullable_array(&mut self, element_bytes_min: usize) -> Read<Option<usize>> {
        let Some(length) = self.length(false)? else {
            return Ok(None);
        };
        if length.saturating_mul(element_bytes_min.max(1)) > self.remaining() {
            return Err(Malformed("an array is longer than the frame"));
        }
        let left = self.elements_left.checked_sub(length);
        self.elements_left = left.ok_or(Malformed("its arrays have too many elements"))?;
        Ok(Some(length))
    }

    /// The length of an array that may be empty but not null.
    pub fn array(&mut self, element_bytes_min: usize) -> Read<usize> {
        self.nullable_array(element_bytes_min)?
            .ok_or(Malformed("an array that must be there is null"))
    }

    /// Skips tagged fields in a flexible encoding; nothing in a plain one.
    pub fn tags(&mut self) -> Read<()> {
        if !self.flexible {
            return Ok(());
        }
        let count = self.varint()? as usize;
        if count > self.remaining() {
            return Err(Malformed("more tagged fields than bytes"));
        }
        for _ in 0..count {
            self.varint()?;
            let size = self.varint()? as usize;
            self.take(size)?;
        }
        Ok(())
    }
}

/// Bytes of one answer at most, batches not counted: what asks for more (by naming the same thing again and again) is not answered.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Writes fields in order into a growing frame.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    flexible: bool,
}

impl Writer {
    /// An empty frame; `flexible` selects compact lengths and tagged fields (KIP-482).
    pub fn new(flexible: bool) -> Self {
        Self {
            bytes: Vec::with_capacity(256),
            flexible,
        }
    }

    /// Switches between the plain and the flexible encoding.
    pub fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// An error once more was written than a client may ask for with one request.
    pub fn check_budget(&self) -> Read<()> {
        if self.bytes.len() > ANSWER_BYTES_MAX {
            return Err(Malformed("its answer would be too large"));
        }
        Ok(())
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Overwrites an INT32 that was written before, at byte `at`.
    pub fn patch_i32(&mut self, at: usize, value: i32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// INT8.
    pub fn i8(&mut self, value: i8) {
        self.raw(&value.to_be_bytes());
    }

    /// INT16.
    pub fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    /// INT32.
    pub fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    /// INT64.
    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// BOOLEAN.
    pub fn bool(&mut self, value: bool) {
        self.i8(i8::from(value));
    }

    /// UNSIGNED_VARINT.
    pub fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// The length of a byte field or an array; None is null.
    pub fn nullable_length(&mut self, length: Option<usize>) {
        match (self.flexible, length) {
            (true, Some(length)) => self.varint(length as u32 + 1),
            (true, None) => self.varint(0),
            (false, Some(length)) => self.i32(length as i32),
            (false, None) => self.i32(-1),
        }
    }

    /// The length of an array.
    pub fn array(&mut self, length: usize) {
        self.nullable_length(Some(length));
    }

    /// NULLABLE_STRING or COMPACT_NULLABLE_STRING.
    pub fn nullable_string(&mut self, value: Option<&str>) {
        if self.flexible {
            self.nullable_length(value.map(str::len));
        } else {
            self.i16(value.map_or(-1, |value| value.len() as i16));
        }
        if let Some(value) = value {
            self.raw(value.as_bytes());
        }
    }

    /// STRING or COMPACT_STRING.
    pub fn string(&mut self, value: &str) {
        self.nullable_string(Some(value));
    }

    /// BYTES or COMPACT_BYTES.
    pub fn bytes(&mut self, value: &[u8]) {
        self.nullable_length(Some(value.len()));
        self.raw(value);
    }

    /// No tagged fields, in a flexible encoding; nothing in a plain one.
    pub fn tags(&mut self) {
        if self.flexible {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_in_both_encodings() {
        for flexible in [false, true] {
            let mut writer = Writer::new(flexible);
            writer.string("topic");
            writer.nullable_string(None);
            writer.array(2);
            writer.i64(-5);
            writer.i64(i64::MAX);
            writer.bytes(&[1, 2, 3]);
            writer.tags();
            let bytes = writer.into_bytes();
            let mut reader = Reader::new(&bytes, flexible);
            assert_eq!(reader.string(), Ok("topic"));
            assert_eq!(reader.nullable_string(), Ok(None));
            assert_eq!(reader.array(8), Ok(2));
            assert_eq!(reader.i64(), Ok(-5));
            assert_eq!(reader.i64(), Ok(i64::MAX));
            assert_eq!(reader.bytes(), Ok(&[1u8, 2, 3][..]));
            reader.tags().unwrap();
            assert_eq!(reader.remaining(), 0);
        }
    }

    #[test]
    fn an_array_longer_than_its_frame_is_refused() {
        let mut reader = Reader::new(&[0x7f, 0xff, 0xff, 0xff, 0, 0], false);
        assert!(reader.array(1).is_err());
        let mut reader = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f], true);
        assert!(reader.array(1).is_err());
    }

    #[test]
    fn a_request_of_many_tiny_elements_is_refused() {
        let mut bytes = (REQUEST_ELEMENTS_MAX as i32 + 1).to_be_bytes().to_vec();
        bytes.resize(bytes.len() + 2 * REQUEST_ELEMENTS_MAX + 2, 0);
        assert!(Reader::new(&bytes, false).array(2).is_ok());
        assert!(Reader::of_request(&bytes).array(2).is_err());
    }

    #[test]
    fn an_endless_varint_is_refused() {
        assert!(Reader::new(&[0xff; 8], true).varint().is_err());
    }
}
