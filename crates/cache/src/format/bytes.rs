//! Reads and writes the fields of a format, one after another.
//!
//! # Why
//! A format is a list of fields. Written as calls in the order of the list, it cannot index past the end of the bytes.
//!
//! # How it works
//! [`Reader`] takes fields from the front of a slice and returns `None` if it is too short; [`Writer`] appends to a
//! vector. Both are little-endian.
//!
//! # Limits
//! A number of 24 bits is the lower three bytes of a `u32`: a larger one is truncated.
//!
//! # Example
//! `Writer(&mut out).u16(0x0102)` appends `02 01`, and `Reader(&[2, 1]).u16()` is `Some(0x0102)`.

/// The bytes still to be read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    /// Takes the next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u24(&mut self) -> Option<u32> {
        self.array().map(|[low, middle, high]| u32::from_le_bytes([low, middle, high, 0]))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }
}

/// The vector to which fields are appended.
pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u24(&mut self, value: u32) -> &mut Self {
        debug_assert!(value < 1 << 24, "{value} has more than 24 bits");
        let [low, middle, high, _] = value.to_le_bytes();
        self.bytes(&[low, middle, high])
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u128(&mut self, value: u128) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
}
