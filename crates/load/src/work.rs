//! The work of a job's fibers: chooses the next request of jobs that mix kinds, lengths or positions.
//!
//! **Why.** Most jobs send requests of one length and one kind; some mix kinds and lengths, flush, prefer popular
//! positions, or verify their reads. The simple jobs must not pay for the others.
//!
//! **How.** [`Work::Plain`] is the simple kind: its request is made from three numbers, and no record of it is kept.
//! All other requests are chosen by [`Special`], which records them. Kinds of a mix alternate so that the proportion is
//! exact at any moment (the error of each choice is carried to the next); lengths and positions are drawn by the seeded
//! generator. A position is aligned to the request's own length. Reads and writes follow the last request of their own
//! direction, as in fio.
//!
//! **Limits.** A sequential job of several lengths continues after its last request, whatever that one's length.
//! Requests of a job with several regions go to them in turn. Sequential requests do not mark the map of drawn
//! positions, as in fio.
//!
//! **Example.** With `read_pct` 70 the first ten requests are w r r w r r w r r r: seven reads in every ten.

use std::collections::VecDeque;

use plimsoll::backend::OpResult;
use plimsoll::{Data, RequestKind};
use plimsoll_sim::rng::Rng;

use super::access::{AccessError, AccessPicker};
use super::verify::Stamps;
use super::{Access, BlockFault, JobSpec, Pattern, SizeShare, Target};

/// The kind of work that a job's fibers do.
pub(super) enum Work {
    /// Reads or writes of one length.
    Plain {
        kind: RequestKind,
        is_random: bool,
    },
    Special(Box<Special>),
    Cpu {
        execution_ns: u64,
    },
    /// Removal of files: their number, and the next to remove.
    Unlink {
        files: u32,
        next: u32,
    },
}

/// A request of a [`Special`] job in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// Number of the region: 0 is the job's target, the others are its further ones.
    pub(super) region: u32,
    pub(super) offset: u64,
    pub(super) len_bytes: u32,
    pub(super) is_write: bool,
    /// Generation of a write or moment of a read; 0 without verification.
    pub(super) event: u64,
}

impl Sent {
    pub(super) fn read(offset: u64, len_bytes: u32) -> Sent {
        Sent { offset, len_bytes, ..Sent::default() }
    }
}

enum Verb {
    Read,
    Write,
    /// Reads in a hundred, and the error carried over from earlier choices, in hundredths.
    Mixed {
        read_pct: u32,
        carried: u32,
    },
    Flush {
        data_only: bool,
    },
    Discard,
}

/// Choice of positions for special requests.
enum Places {
    Sequential,
    Uniform,
    Picked(Box<AccessPicker>),
}

/// Equipment that only some jobs need.
#[derive(Default)]
pub(super) struct Extras {
    pub(super) picker: Option<AccessPicker>,
    pub(super) stamps: Option<Box<Stamps>>,
    /// First word of the job's sequence for [`renew`].
    pub(super) next_word: u64,
    /// Buffers beyond those of the fibers: see [`super::content::spares`].
    pub(super) spares: VecDeque<Data>,
}

/// Work of any requests that are not plain.
pub(super) struct Special {
    verb: Verb,
    places: Places,
    /// Lengths of reads and of writes: (cumulative per cent, length), ascending.
    sizes: [Vec<(f64, u32)>; 2],
    /// Length that a picked position stands for: the shortest.
    unit_bytes: u64,
    /// Ends of the last read and the last write in each region, from its beginning. Before the first request of a
    /// sequential job: its start.
    ends: Vec<[u64; 2]>,
    /// Region of the next request.
    turn: usize,
    /// Requests until the next position is drawn.
    run_left: u32,
    pub(super) stamps: Option<Box<Stamps>>,
    /// Bytes asked for so far, read and written.
    pub(super) asked_bytes: [u64; 2],
    discarded_bytes: u64,
    /// The written part of the file, as first offset and end.
    pub(super) written: Option<(u64, u64)>,
    pub(super) faults: Vec<BlockFault>,
    pub(super) fault_count: u64,
}

impl Special {
    /// Returns the kind of the next request, and the record to keep of it.
    pub(super) fn next(
        &mut self,
        spec: &JobSpec,
        target: &Target,
        more: &[Target],
        rng: &mut Rng,
    ) -> (RequestKind, Sent) {
        if let Verb::Flush { data_only } = self.verb {
            return (RequestKind::Sync { data_only }, Sent { offset: target.offset, ..Sent::default() });
        }

        let is_write = match &mut self.verb {
            Verb::Read => false,
            Verb::Mixed { read_pct, carried } => {
                *carried += *read_pct;
                let is_read = *carried >= 100;
                *carried -= if is_read { 100 } else { 0 };
                !is_read
            }
            _ => true,
        };

        let region = self.turn;
        self.turn = (region + 1) % (1 + more.len());
        let target = region.checked_sub(1).and_then(|at| more.get(at)).unwrap_or(target);
        let len_bytes = self.length(spec.request_bytes, is_write, rng);
        let (place, len_bytes) = self.place(spec, target.len_bytes, len_bytes, (region, is_write), rng);
        let offset = target.offset + place;

        let kind = match (&self.verb, is_write) {
            (Verb::Discard, _) => RequestKind::Discard { len_bytes: u64::from(len_bytes) },
            (_, true) => RequestKind::Write { len_bytes },
            (_, false) => RequestKind::Read { len_bytes },
        };
        (kind, Sent { region: region as u32, offset, len_bytes, is_write, event: 0 })
    }

    fn length(&self, request_bytes: u32, is_write: bool, rng: &mut Rng) -> u32 {
        let [reads, writes] = &self.sizes;
        let sizes = if is_write && !writes.is_empty() { writes } else { reads };
        let Some((last_pct, last_bytes)) = sizes.last() else { return request_bytes };
        // 53 bits fill a float's mantissa.
        let drawn_pct = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * last_pct;
        let at = sizes.partition_point(|(upto_pct, _)| *upto_pct <= drawn_pct);
        sizes.get(at).map_or(*last_bytes, |(_, bytes)| *bytes)
    }

    /// Returns the offset in region `at` of `region_bytes` for a read or a write of `len_bytes` (that fits in it), and
    /// its length, which is less if a map has positions that other requests took.
    fn place(
        &mut self,
        spec: &JobSpec,
        region_bytes: u64,
        len_bytes: u32,
        (at, is_write): (usize, bool),
        rng: &mut Rng,
    ) -> (u64, u32) {
        let mut len_bytes = u64::from(len_bytes);
        let direction = usize::from(is_write);
        let end = self.ends.get(at).map_or(0, |ends| ends[direction]);
        let is_first = self.run_left <= 1;
        self.run_left = if is_first { spec.run_length.max(1) } else { self.run_left - 1 };
        let is_drawn =
            is_first && !matches!(self.places, Places::Sequential) && is_within(spec.random_pct[direction], rng);

        let align_bytes = spec.align_bytes.map_or(len_bytes, u64::from).max(1);
        let positions = region_bytes.saturating_sub(len_bytes) / align_bytes + 1;
        let offset = match &mut self.places {
            Places::Uniform if is_drawn => rng.below(positions) * align_bytes,
            Places::Picked(picker) if is_drawn => {
                let (position, count) = picker.take(rng, len_bytes.div_ceil(self.unit_bytes));
                let offset = position.saturating_mul(self.unit_bytes);
                if spec.access == Access::Once {
                    len_bytes = len_bytes.min(count * self.unit_bytes);
                    offset
                } else {
                    (offset / align_bytes).min(positions - 1) * align_bytes
                }
            }
            _ => next_in_line(end, if is_first { spec.step_bytes } else { 0 }, region_bytes, len_bytes),
        };

        if let Some(ends) = self.ends.get_mut(at) {
            ends[direction] = offset + len_bytes;
        }
        // The length is at most the requested one.
        (offset, len_bytes as u32)
    }

    /// Records that a request of `kind` was submitted.
    pub(super) fn is_sent(&mut self, kind: RequestKind, sent: &Sent) {
        let len_bytes = u64::from(sent.len_bytes);
        match kind {
            RequestKind::Read { .. } => self.asked_bytes[0] += len_bytes,
            RequestKind::Write { .. } => {
                self.asked_bytes[1] += len_bytes;
                let (from, to) = self.written.unwrap_or((u64::MAX, 0));
                self.written = Some((from.min(sent.offset), to.max(sent.offset + len_bytes)));
            }
            RequestKind::Discard { len_bytes } => self.discarded_bytes += len_bytes,
            _ => {}
        }
    }

    /// Returns whether at least `limit_bytes` were asked for: read, written or discarded.
    pub(super) fn has_asked(&self, limit_bytes: Option<u64>) -> bool {
        limit_bytes.is_some_and(|limit| self.all_bytes() >= limit)
    }

    pub(super) fn all_bytes(&self) -> u64 {
        self.asked_bytes.iter().sum::<u64>() + self.discarded_bytes
    }

    /// Returns the result of a request in bytes, and the bytes expected. A complete discard counts its whole length.
    pub(super) fn outcome(&self, sent: &Sent, result: OpResult) -> (OpResult, u32) {
        match self.verb {
            Verb::Discard => (result.map(|_| sent.len_bytes), sent.len_bytes),
            _ => (result, sent.len_bytes),
        }
    }
}

/// Returns whether a request is among `pct` in a hundred. Draws only if both are possible.
fn is_within(pct: u8, rng: &mut Rng) -> bool {
    pct >= 100 || (pct > 0 && rng.below(100) < u64::from(pct))
}

/// Returns the offset of a sequential request of `len_bytes` after one that ended at `end`, with `step_bytes` between
/// them. As in fio, a job that reaches one end of the region continues at the other.
fn next_in_line(end: u64, step_bytes: i64, region_bytes: u64, len_bytes: u64) -> u64 {
    let last = region_bytes.saturating_sub(len_bytes);
    if end == 0 {
        return 0;
    }
    match end.checked_add_signed(step_bytes) {
        Some(offset) if offset <= last => offset,
        _ if step_bytes >= 0 => 0,
        _ => region_bytes.checked_add_signed(step_bytes).unwrap_or(0).min(last),
    }
}

pub(super) fn work_of(spec: &JobSpec, first: u64, regions: usize, extras: Extras) -> Work {
    let Extras { picker, stamps, .. } = extras;
    let len_bytes = spec.request_bytes;
    let verb = match spec.kind {
        Pattern::SeqRead | Pattern::RandRead => Verb::Read,
        Pattern::Overwrite | Pattern::RandWrite | Pattern::Append => Verb::Write,
        Pattern::RandMixed { read_pct } | Pattern::SeqMixed { read_pct } => {
            Verb::Mixed { read_pct: u32::from(read_pct.min(100)), carried: 0 }
        }
        Pattern::Flush => Verb::Flush { data_only: spec.flush_data_only },
        Pattern::Discard { .. } => Verb::Discard,
        Pattern::Unlink { files } => return Work::Unlink { files, next: 0 },
        Pattern::Cpu { execution_ns } => return Work::Cpu { execution_ns },
    };
    let is_random = spec.kind.is_random();
    let is_special = !spec.sizes.is_empty()
        || picker.is_some()
        || spec.flush_every > 0
        || stamps.is_some()
        || regions > 1
        || spec.step_bytes != 0
        || spec.run_length > 1
        || spec.random_pct != [100, 100]
        || spec.align_bytes.is_some();
    if !is_special {
        match verb {
            Verb::Read => return Work::Plain { kind: RequestKind::Read { len_bytes }, is_random },
            Verb::Write => return Work::Plain { kind: RequestKind::Write { len_bytes }, is_random },
            _ => {}
        }
    }

    let places = match picker {
        Some(picker) => Places::Picked(Box::new(picker)),
        None if is_random => Places::Uniform,
        None => Places::Sequential,
    };

    let cumulative = |sizes: &[SizeShare]| {
        let mut upto_pct = 0.0;
        let upto = |size: &SizeShare| {
            upto_pct += size.percent;
            (upto_pct, size.bytes)
        };
        sizes.iter().map(upto).collect::<Vec<_>>()
    };
    Work::Special(Box::new(Special {
        verb,
        places,
        sizes: [cumulative(&spec.sizes), cumulative(&spec.write_sizes)],
        unit_bytes: unit_bytes(spec),
        ends: vec![[first * u64::from(len_bytes); 2]; regions],
        turn: 0,
        run_left: 0,
        stamps,
        asked_bytes: [0, 0],
        discarded_bytes: 0,
        written: None,
        faults: Vec::new(),
        fault_count: 0,
    }))
}

pub(super) fn lengths(spec: &JobSpec) -> impl Iterator<Item = u32> + '_ {
    let sizes = spec.sizes.iter().chain(&spec.write_sizes).map(|size| size.bytes);
    std::iter::once(spec.request_bytes).chain(sizes)
}

/// Returns the shortest request of a job, in bytes, at least 1.
fn unit_bytes(spec: &JobSpec) -> u64 {
    u64::from(lengths(spec).min().unwrap_or(spec.request_bytes).max(1))
}

/// Returns the picker of a job's positions, or `None` if they are drawn evenly or not at all.
pub(super) fn picker(spec: &JobSpec, target: &Target, seed: u64) -> Result<Option<AccessPicker>, AccessError> {
    if !spec.kind.is_random() || spec.access == Access::Uniform {
        return Ok(None);
    }
    AccessPicker::new(&spec.access, target.len_bytes / unit_bytes(spec), seed).map(Some)
}

#[cfg(test)]
mod tests {
    use super::next_in_line;

    /// The offsets of requests of 4 bytes in a region of 32, from its begin on.
    fn line(step_bytes: i64, count: usize) -> Vec<u64> {
        let mut end = 0;
        let next = |_| {
            let offset = next_in_line(end, step_bytes, 32, 4);
            end = offset + 4;
            offset
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn steps_lead_through_the_region_and_around_its_end() {
        assert_eq!(line(0, 9), [0, 4, 8, 12, 16, 20, 24, 28, 0]);
        assert_eq!(line(4, 5), [0, 8, 16, 24, 0]);
        assert_eq!(line(-8, 9), [0, 24, 20, 16, 12, 8, 4, 0, 24]);
        assert_eq!(line(100, 2), [0, 0]);
        assert_eq!(line(-100, 3), [0, 0, 0]);
    }
}
