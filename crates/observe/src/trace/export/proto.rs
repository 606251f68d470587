//! Just enough of the protobuf wire format to write messages.
//!
//! **Why.** A trace for Perfetto is a dozen fields of five messages; a code generator and its run time would weigh
//! more.
//!
//! **How.** A message is bytes to which fields are added: a key (number and wire type) and a value, as the encoding
//! guide of Protocol Buffers says. Numbers are varints, 7 bits a byte, the lowest first.
//!
//! **Limits.** No packed fields, no groups, and nothing is read.
//!
//! **Example.** Field 1 with the number 150 is `08 96 01`; field 2 with the text `hi` is `12 02 68 69`.

/// A message being built.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Empties the message and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a number (`uint32`, `uint64`, an enum, or an `int64` as two's complement).
    pub(super) fn number(&mut self, field: u32, value: u64) -> &mut Message {
        self.key(field, 0);
        self.varint(value);
        self
    }

    /// Adds a `fixed64`.
    pub(super) fn fixed(&mut self, field: u32, value: u64) -> &mut Message {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Message {
        self.delimited(field, text.as_bytes());
        self
    }

    pub(super) fn message(&mut self, field: u32, inner: &Message) -> &mut Message {
        self.delimited(field, &inner.0);
        self
    }

    fn delimited(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn key(&mut self, field: u32, wire_type: u64) {
        self.varint(u64::from(field) << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_spelled_as_the_encoding_guide_says() {
        let mut inner = Message::default();
        inner.number(1, 150);
        assert_eq!(inner.bytes(), [0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.text(2, "hi").message(3, &inner).fixed(47, 1).number(30, -1_i64 as u64);
        let mut expected = vec![0x12, 2, b'h', b'i', 0x1a, 3, 0x08, 0x96, 0x01, 0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([0xf0, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(message.bytes(), expected);
        message.clear();
        assert!(message.bytes().is_empty());
    }
}
