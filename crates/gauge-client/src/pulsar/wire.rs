//! Protocol Buffers' encoding, as far as Pulsar's commands need it: varints and length-delimited fields.
//!
//! Source: the Protocol Buffers documentation, "Encoding". Commands are small and few per batch, so they are read field by field where
//! they lie, without a schema compiler.

use std::fmt;

/// What was read does not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

const CUT: Malformed = Malformed("a command ends in the middle of a field");

/// Bytes that a varint takes.
#[inline]
pub(super) fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Writes a varint at the beginning of `into` and returns its length.
#[inline]
pub(super) fn write_varint(into: &mut [u8], mut value: u64) -> usize {
    let mut at = 0;
    while value >= 0x80 {
        into[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    into[at] = value as u8;
    at + 1
}

/// Fields are appended to bytes.
pub(super) trait Put {
    fn put_varint(&mut self, value: u64);
    /// A field of one of the integer types, `bool` or an enum.
    fn put_number(&mut self, field: u32, value: u64);
    /// A field of type `string` or `bytes`, or a message.
    fn put_bytes(&mut self, field: u32, value: &[u8]);
    /// A message that is written by `write`.
    fn put_message(&mut self, field: u32, write: impl FnOnce(&mut Vec<u8>));
}

impl Put for Vec<u8> {
    fn put_varint(&mut self, value: u64) {
        let mut bytes = [0; 10];
        let length = write_varint(&mut bytes, value);
        self.extend_from_slice(&bytes[..length]);
    }

    fn put_number(&mut self, field: u32, value: u64) {
        self.put_varint(u64::from(field) << 3);
        self.put_varint(value);
    }

    fn put_bytes(&mut self, field: u32, value: &[u8]) {
        self.put_varint(u64::from(field) << 3 | 2);
        self.put_varint(value.len() as u64);
        self.extend_from_slice(value);
    }

    fn put_message(&mut self, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let mut message = Vec::new();
        write(&mut message);
        self.put_bytes(field, &message);
    }
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A type that no field of ours has.
    Other,
}

impl<'a> Value<'a> {
    pub fn number(self) -> Result<u64, Malformed> {
        match self {
            Value::Number(number) => Ok(number),
            _ => Err(Malformed("a field that should be a number is none")),
        }
    }

    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed("a field that should hold bytes does not")),
        }
    }
}

/// A message's fields, in the order in which they come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (at, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(CUT)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(CUT)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next field: its number and its value.
    #[inline]
    pub fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = u32::try_from(tag >> 3).map_err(|_| Malformed("a field with an impossible number"))?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Other
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| CUT)?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Value::Other
            }
            _ => return Err(Malformed("a field of an unknown type")),
        };
        Ok(Some((field, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_written_as_the_documentation_shows() {
        // The documentation's own example: field 1, the number 150; field 2, the text "testing".
        let mut bytes = Vec::new();
        bytes.put_number(1, 150);
        bytes.put_bytes(2, b"testing");
        assert_eq!(bytes, b"\x08\x96\x01\x12\x07testing");
        let mut fields = Fields::new(&bytes);
        assert_eq!(fields.next(), Ok(Some((1, Value::Number(150)))));
        assert_eq!(fields.next(), Ok(Some((2, Value::Bytes(b"testing")))));
        assert_eq!(fields.next(), Ok(None));
    }

    proptest! {
        #[test]
        fn numbers_survive(value: u64, field in 1..1000u32) {
            let mut bytes = Vec::new();
            bytes.put_number(field, value);
            prop_assert_eq!(bytes.len(), varint_bytes(u64::from(field) << 3) + varint_bytes(value));
            prop_assert_eq!(Fields::new(&bytes).next(), Ok(Some((field, Value::Number(value)))));
        }

        #[test]
        fn garbage_ends(bytes: Vec<u8>) {
            let mut fields = Fields::new(&bytes);
            while let Ok(Some(_)) = fields.next() {}
        }
    }
}
