//! Chooses the request size of an IOPS figure.
//!
//! **Why.** A rate of operations is meaningful only with the size of an operation.
//!
//! **How.** 4096 bytes, the size that the scheduler and published figures assume, or more if the disk works in larger
//! units: a smaller request would cost the device a whole physical block (a write even a read before it). Reads and
//! writes are decided separately, because the user can set either.
//!
//! **Limits.** Disks claim 512 bytes and work in 4096; the kernel's value is a lower bound. A physical block that is no
//! power of two, or above 1 MiB, is an error of the driver and counts as unknown.
//!
//! **Example.** Two drives with physical blocks of 4096 and 16384 bytes: 16384 ("kernel: physical block 16384").

use plimsoll_files::io_properties::IOPS_BLOCK_BYTES;

use super::super::TuneError;
use super::super::report::device::{BlockSize, Device};

const BLOCK_RANGE_BYTES: std::ops::RangeInclusive<u32> = 512..=1 << 20;

/// Returns the request size of an IOPS figure. `set` is the user's value for `option`; direct I/O requires
/// `align_bytes`.
pub(in crate::tune) fn block_size(
    option: &'static str,
    set: Option<u32>,
    align_bytes: u32,
    device: Option<&Device>,
) -> Result<BlockSize, TuneError> {
    if let Some(bytes) = set {
        let bad = |reason: String| Err(TuneError::Option { option, reason });
        if !bytes.is_power_of_two() || !BLOCK_RANGE_BYTES.contains(&bytes) {
            return bad(format!("{bytes} bytes is not a power of two from 512 to 1048576"));
        }
        if !bytes.is_multiple_of(align_bytes.max(1)) {
            return bad(format!("direct I/O takes multiples of {align_bytes} bytes here, and {bytes} is none"));
        }
        return Ok(BlockSize { bytes, how: format!("set by {option}"), is_set: true });
    }

    let floor_bytes = align_bytes.max(IOPS_BLOCK_BYTES);
    let physical = physical_block_bytes(device);
    let bytes = physical.unwrap_or(0).max(floor_bytes);

    let chosen = if align_bytes > IOPS_BLOCK_BYTES && bytes == align_bytes {
        format!("{bytes}, the alignment of direct I/O")
    } else {
        bytes.to_string()
    };

    let how = match physical {
        Some(physical) if physical == bytes => format!("kernel: physical block {physical}"),
        Some(physical) => format!("kernel: physical block {physical}, so {chosen}"),
        None => format!("fallback {chosen}, because the kernel gives no physical block for it"),
    };
    Ok(BlockSize { bytes, how, is_set: false })
}

/// Returns the largest physical block of the leaves; `None` if none is known and valid.
pub(in crate::tune) fn physical_block_bytes(device: Option<&Device>) -> Option<u32> {
    let known = device?.leaves.iter().filter_map(|leaf| leaf.physical_block_bytes.max(leaf.logical_block_bytes));
    let sensible = known.filter_map(|bytes| u32::try_from(bytes).ok());
    sensible.filter(|bytes| bytes.is_power_of_two() && BLOCK_RANGE_BYTES.contains(bytes)).max()
}

#[cfg(test)]
mod tests {
    use super::super::super::report::device::Leaf;
    use super::*;

    fn disk(physical: &[Option<u64>]) -> Device {
        let leaf = |(number, physical): (usize, &Option<u64>)| Leaf {
            name: format!("nvme{number}n1"),
            physical_block_bytes: *physical,
            ..Leaf::default()
        };
        Device { leaves: physical.iter().enumerate().map(leaf).collect(), ..Device::default() }
    }

    #[test]
    fn block_sizes_are_four_kib_or_what_the_disk_works_in() {
        let cases = [
            (None, 512, Some(disk(&[Some(512)])), 4096, "kernel: physical block 512, so 4096"),
            (None, 512, Some(disk(&[Some(4096), Some(16384)])), 16384, "kernel: physical block 16384"),
            (
                None,
                8192,
                Some(disk(&[Some(512)])),
                8192,
                "kernel: physical block 512, so 8192, the alignment of direct I/O",
            ),
            (None, 512, Some(disk(&[None])), 4096, "fallback 4096, because the kernel gives no physical block for it"),
            (
                None,
                512,
                Some(disk(&[Some(3000)])),
                4096,
                "fallback 4096, because the kernel gives no physical block for it",
            ),
            (None, 1, None, 4096, "fallback 4096, because the kernel gives no physical block for it"),
            (Some(512), 512, Some(disk(&[Some(4096)])), 512, "set by --read-block-size"),
        ];
        for (set, align, device, bytes, how) in cases {
            let found = block_size("--read-block-size", set, align, device.as_ref()).unwrap();
            assert_eq!((found.bytes, found.how.as_str()), (bytes, how));
        }
        for (set, align, part) in
            [(3000, 512, "power of two"), (2 << 20, 512, "1048576"), (512, 4096, "multiples of 4096")]
        {
            let error = block_size("--read-block-size", Some(set), align, None).unwrap_err().to_string();
            assert!(error.contains("--read-block-size") && error.contains(part), "{error}");
        }
    }
}
