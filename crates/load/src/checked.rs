//! Stamps the writes and checks the reads of jobs that verify.
//!
//! **Why.** Jobs that do not verify must not pay for this, and requests do not depend on it.
//!
//! **How.** [`Special`] has [`Stamps`](super::verify::Stamps) if its job verifies. A write is stamped before it is
//! submitted, a read is checked against all data that may have been written since its submission. Without stamps
//! nothing happens.
//!
//! **Limits.** Only whole sectors are checked; the first [`FAULTS_MAX`] faults are kept, the others counted.
//!
//! **Example.** A read that completes with 4 KiB is checked sector by sector, over all buffers of the request.

use plimsoll::buffer::AlignedBuf;
use plimsoll::{Data, Done};

use super::FAULTS_MAX;
use super::verify::{SECTOR_BYTES, StampError};
use super::work::{Sent, Special};

impl Special {
    /// Prepares a request for submission: stamps the data of a write.
    pub(super) fn begin(&mut self, sent: &mut Sent, data: &mut Data) -> Result<(), StampError> {
        let Some(stamps) = &mut self.stamps else { return Ok(()) };
        let len_bytes = u64::from(sent.len_bytes);
        if !sent.is_write {
            sent.event = stamps.begin_read(sent.offset, len_bytes)?;
            return Ok(());
        }
        sent.event = stamps.begin_write(sent.offset, len_bytes)?;

        let mut at = 0;
        for buffer in pieces_mut(data) {
            let piece_bytes = buffer.len().min(sent.len_bytes as usize - at);
            if let Some(bytes) = buffer.get_mut(..piece_bytes) {
                stamps.put(bytes, sent.offset + at as u64, sent.event);
            }
            at += piece_bytes;
        }
        Ok(())
    }

    /// Records that a request was refused, so it did not happen.
    pub(super) fn is_refused(&mut self, sent: &Sent) {
        let Some(stamps) = &mut self.stamps else { return };
        match sent.is_write {
            true => stamps.failed(sent.offset, u64::from(sent.len_bytes), sent.event),
            false => stamps.end_read(sent.offset, u64::from(sent.len_bytes)),
        }
    }

    /// Advances `next` to the next request of `request_bytes` that a write has touched. Returns its length, cut at
    /// `to`, or `None` if there is none.
    pub(super) fn skip_unwritten(&self, next: &mut u64, to: u64, request_bytes: u32) -> Option<u32> {
        while *next < to {
            let len_bytes = u32::try_from(to - *next).unwrap_or(u32::MAX).min(request_bytes);
            if self.stamps.as_ref().is_some_and(|stamps| stamps.is_touched(*next, u64::from(len_bytes))) {
                return Some(len_bytes);
            }
            *next += u64::from(len_bytes.max(1));
        }
        None
    }

    /// Checks a completion against the expected data, if the job verifies.
    pub(super) fn verify(&mut self, sent: &Sent, end: &Done) {
        let Some(stamps) = &mut self.stamps else { return };
        let len_bytes = u64::from(sent.len_bytes);
        match (sent.is_write, end.result) {
            (true, Ok(bytes)) if bytes == sent.len_bytes => stamps.acknowledged(sent.offset, len_bytes, sent.event),
            (true, _) => stamps.failed(sent.offset, len_bytes, sent.event),
            (false, result) => {
                self.check(&end.data, sent, result.unwrap_or_else(|error| error.moved_bytes()));
                if let Some(stamps) = &mut self.stamps {
                    stamps.end_read(sent.offset, len_bytes);
                }
            }
        }
    }

    /// Checks the first `read_bytes` of a read, as far as they are whole sectors.
    fn check(&mut self, data: &Data, sent: &Sent, read_bytes: u32) {
        let Some(stamps) = &self.stamps else { return };
        let mut left_bytes = read_bytes as usize / SECTOR_BYTES * SECTOR_BYTES;
        let mut offset = sent.offset;
        for buffer in pieces(data) {
            let piece_bytes = buffer.len().min(left_bytes);
            let faults = buffer.get(..piece_bytes).map(|bytes| stamps.check_since(bytes, offset, sent.event));
            let faults = faults.unwrap_or_default();
            self.fault_count += faults.len() as u64;
            let room = FAULTS_MAX.saturating_sub(self.faults.len());
            self.faults.extend(faults.into_iter().take(room));
            left_bytes -= piece_bytes;
            offset += piece_bytes as u64;
        }
    }
}

fn pieces(data: &Data) -> &[AlignedBuf] {
    match data {
        Data::None => &[],
        Data::One(buffer) => std::slice::from_ref(buffer),
        Data::Many(buffers) => buffers,
    }
}

pub(super) fn pieces_mut(data: &mut Data) -> &mut [AlignedBuf] {
    match data {
        Data::None => &mut [],
        Data::One(buffer) => std::slice::from_mut(buffer),
        Data::Many(buffers) => buffers,
    }
}
