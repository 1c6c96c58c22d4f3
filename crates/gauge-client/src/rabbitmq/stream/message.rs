//! Messages as RabbitMQ's stream clients encode them: AMQP 1.0 messages (OASIS AMQP 1.0, section 3.2), so that every client of RabbitMQ
//! reads them, those of AMQP 0-9-1 included. Ours consist of a data section alone.

use super::super::codec::{Malformed, Reader};

/// Descriptor of a data section, up to the constructor of its bytes.
const DATA: [u8; 3] = [0x00, 0x53, 0x75];
const BINARY_8: u8 = 0xa0;
const BINARY_32: u8 = 0xb0;
/// Descriptors of sections: header to footer.
const SECTIONS: std::ops::RangeInclusive<u8> = 0x70..=0x78;

/// Bytes of a message beside its body.
#[inline]
pub(super) fn head_bytes(body_bytes: usize) -> usize {
    if body_bytes <= usize::from(u8::MAX) { 5 } else { 8 }
}

/// Writes what stands before the body into `place`, whose length is that of the whole message. Returns the body's place.
#[inline]
pub(super) fn write_head(place: &mut [u8], body_bytes: usize) -> &mut [u8] {
    place[..3].copy_from_slice(&DATA);
    match u8::try_from(body_bytes) {
        Ok(length) => {
            place[3] = BINARY_8;
            place[4] = length;
            &mut place[5..]
        }
        Err(_) => {
            place[3] = BINARY_32;
            place[4..8].copy_from_slice(&(body_bytes as u32).to_be_bytes());
            &mut place[8..]
        }
    }
}

/// The body of a message: its first data section. Something that is no AMQP message is its own body.
#[inline]
pub(super) fn body(message: &[u8]) -> &[u8] {
    match message {
        [0x00, 0x53, 0x75, BINARY_8, length, rest @ ..] if usize::from(*length) == rest.len() => rest,
        [0x00, 0x53, 0x75, BINARY_32, a, b, c, d, rest @ ..]
            if u32::from_be_bytes([*a, *b, *c, *d]) as usize == rest.len() =>
        {
            rest
        }
        _ => data_section(message).ok().flatten().unwrap_or(message),
    }
}

/// The first data section, behind whatever stands before it.
fn data_section(message: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let mut reader = Reader::new(message);
    loop {
        if reader.u8()? != 0 {
            return Ok(None);
        }
        // A descriptor is an unsigned long, small or not.
        let descriptor = match reader.u8()? {
            0x53 => u64::from(reader.u8()?),
            0x80 => reader.u64()?,
            _ => return Ok(None),
        };
        match u8::try_from(descriptor) {
            Ok(section) if SECTIONS.contains(&section) => {
                let value = value(&mut reader)?;
                if section == DATA[2] {
                    return Ok(Some(value));
                }
            }
            _ => return Ok(None),
        }
    }
}

/// Bytes of a value of variable width: what sections consist of.
fn value<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    match reader.u8()? {
        0x40..=0x45 => Ok(&[]),
        // Binary, string, symbol; list, map; array: one byte of length.
        0xa0 | 0xa1 | 0xa3 | 0xc0 | 0xc1 | 0xe0 => {
            let length = reader.u8()?;
            reader.bytes(length.into())
        }
        0xb0 | 0xb1 | 0xb3 | 0xd0 | 0xd1 | 0xf0 => {
            let length = reader.u32()?;
            reader.bytes(length as usize)
        }
        _ => Err(Malformed("a section is of an unknown type")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(payload: &[u8]) -> Vec<u8> {
        let mut message = vec![0; head_bytes(payload.len()) + payload.len()];
        write_head(&mut message, payload.len()).copy_from_slice(payload);
        message
    }

    #[test]
    fn bodies_are_data_sections() {
        assert_eq!(written(b"ab"), [0x00, 0x53, 0x75, 0xa0, 2, b'a', b'b']);
        for length in [0, 1, 255, 256, 70_000] {
            let payload = vec![7; length];
            assert_eq!(body(&written(&payload)), payload);
        }
    }

    #[test]
    fn other_sections_are_passed_over() {
        // Properties (a list with a message-id) and application properties (an empty map) before the data.
        let mut message = vec![
            0x00, 0x53, 0x73, 0xc0, 3, 1, 0x53, 9, 0x00, 0x53, 0x74, 0xc1, 1, 0,
        ];
        message.extend(written(b"body"));
        assert_eq!(body(&message), b"body");
        // The long form of a descriptor.
        let long = [0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x75, 0xa0, 1, b'x'];
        assert_eq!(body(&long), b"x");
    }

    #[test]
    fn what_is_no_amqp_message_is_its_own_body() {
        assert_eq!(body(b"plain"), b"plain");
        assert_eq!(body(b""), b"");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = body(&bytes);
        }
    }
}
