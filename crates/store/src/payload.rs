//! Payloads: lists of pieces from which aligned buffers are filled.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use object_store::PutPayload;

/// Pieces of memory to be written one after another.
#[derive(Default)]
pub(crate) struct Payload {
    pieces: VecDeque<Bytes>,
    len_bytes: usize,
}

impl Payload {
    /// Returns a payload of `head`, followed by `payload`.
    pub(crate) fn new(head: Bytes, payload: PutPayload) -> Payload {
        let len_bytes = head.len() + payload.content_length();
        Payload { pieces: std::iter::once(head).chain(payload).collect(), len_bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.len_bytes
    }

    /// Removes all but the first `len_bytes` bytes and returns a copy of the removed ones, so that a few bytes do not
    /// keep a whole payload in memory.
    pub(crate) fn cut_off_after(&mut self, len_bytes: usize) -> Bytes {
        let mut tail = Vec::with_capacity(self.len_bytes.saturating_sub(len_bytes));
        let mut place = 0;
        for piece in &mut self.pieces {
            let kept = len_bytes.saturating_sub(place).min(piece.len());
            place += piece.len();
            tail.extend_from_slice(&piece.split_off(kept));
        }
        self.len_bytes -= tail.len();
        tail.into()
    }

    /// Moves the next bytes into `buffer`, and fills the rest of it with zeros.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) {
        let mut filled = 0;
        while let Some(piece) = self.pieces.front_mut()
            && filled < buffer.len()
        {
            let len_bytes = piece.len().min(buffer.len() - filled);
            piece.copy_to_slice(&mut buffer[filled..filled + len_bytes]);
            filled += len_bytes;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.len_bytes -= filled;
        buffer[filled..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload() -> Payload {
        Payload::new("ab".into(), ["cde", "", "fghi"].map(Bytes::from).into_iter().collect())
    }

    #[test]
    fn buffers_are_filled_across_pieces_and_padded() {
        for step in 1..12 {
            let (mut payload, mut filled) = (payload(), Vec::new());
            while payload.len() > 0 {
                let mut buffer = vec![0xff; step];
                payload.fill(&mut buffer);
                filled.extend(buffer);
            }
            let mut expected = b"abcdefghi".to_vec();
            expected.resize(9_usize.next_multiple_of(step), 0);
            assert_eq!(filled, expected, "{step} bytes at a time");
        }
    }

    #[test]
    fn what_fills_no_block_is_cut_off() {
        for len_bytes in 0..=9 {
            let mut payload = payload();
            let tail = payload.cut_off_after(len_bytes);
            let mut kept = vec![0; payload.len()];
            payload.fill(&mut kept);
            assert_eq!((&kept[..], &tail[..]), b"abcdefghi".split_at(len_bytes));
        }
    }
}
