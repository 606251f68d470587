//! Files of a job by fio's rules: shared by name, several for a job, regions in bytes or in per cent.
//!
//! **Why.** Jobs of a fio file that name the same file share it, and the meaning of `size`, `offset` and `filesize`
//! depends on the length of the file. The length is known only when the run begins.
//!
//! **How.** A [`FileSet`] has the job's settings. Given the length of a file, [`FileSet::region`] places the job in it
//! and [`FileSet::limit_bytes`] returns the end of the job; [`FileSet::new_file_bytes`] is the length of a file to
//! create.
//!
//! **Limits.** All files of a job have the same part of its size. fio gives the first files a block more if the size
//! does not divide.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::job_files::{FileSet, Length};
//! let half = FileSet { offset: Length::Percent(50), size: Some(Length::Percent(25)), ..FileSet::default() };
//! assert_eq!(half.region(1 << 30), (512 << 20, 256 << 20));
//! ```

use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Bytes(u64),
    /// Hundredths of the file's length.
    Percent(u64),
}

impl Length {
    /// Returns the bytes, if the whole has `whole_bytes`.
    pub fn of(self, whole_bytes: u64) -> u64 {
        match self {
            Length::Bytes(bytes) => bytes,
            Length::Percent(percent) => percent_of(whole_bytes, percent),
        }
    }
}

fn percent_of(bytes: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// The files of one clone, and its region in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSet {
    /// Files and devices, shared with all jobs that name them. If empty, the clone has `count` files of its own.
    pub named: Vec<PathBuf>,
    pub directory: PathBuf,
    /// Number of the clone's own files, at least 1.
    pub count: u32,
    /// Format of the names of its own files, in which `$jobname`, `$jobnum` and `$filenum` are replaced by the job, the
    /// clone and the file; `None`: any names. Clones with the same names share a file. See [`FileSet::of_clone`].
    pub name_format: Option<String>,
    /// Length of each file if it is created (`filesize`), in bytes.
    pub file_bytes: Option<u64>,
    /// Bytes of all files together, or part of each file; `None` is all from the offset on.
    pub size: Option<Length>,
    /// First byte of the first clone's region.
    pub offset: Length,
    /// Distance between the regions of two clones.
    pub increment: Length,
    /// Number of the clone, from 0.
    pub clone_number: u64,
    /// Shortest request in bytes, at least 1: sizes in per cent are multiples of it.
    pub unit_bytes: u64,
    /// Unit of offsets in per cent, at least 1.
    pub offset_unit_bytes: u64,
    /// Amount of data to transfer, if it differs from the length of the regions (`io_size`).
    pub work: Option<Length>,
    /// Times that the job repeats that work, at least 1.
    pub loops: u64,
    /// Whether only the runtime ends the job.
    pub time_based: bool,
}

impl Default for FileSet {
    /// Returns one file of its own, used once and in full.
    fn default() -> FileSet {
        FileSet {
            named: Vec::new(),
            directory: PathBuf::from("."),
            count: 1,
            name_format: None,
            file_bytes: None,
            size: None,
            offset: Length::Bytes(0),
            increment: Length::Bytes(0),
            clone_number: 0,
            unit_bytes: 1,
            offset_unit_bytes: 1,
            work: None,
            loops: 1,
            time_based: false,
        }
    }
}

impl FileSet {
    /// Returns the files of clone `number` of the job called `job_name`.
    pub fn of_clone(&self, job_name: &str, number: u64) -> FileSet {
        let mut set = FileSet { clone_number: number, ..self.clone() };
        let Some(format) = self.name_format.as_deref().filter(|_| self.named.is_empty()) else { return set };
        for file in 0..self.count {
            let path = self.directory.join(expand(format, job_name, number, file).trim_start_matches('/'));
            if !set.named.contains(&path) {
                set.named.push(path);
            }
        }
        set
    }

    pub fn files(&self) -> u64 {
        if self.named.is_empty() { u64::from(self.count.max(1)) } else { self.named.len() as u64 }
    }

    /// Returns the length that a file needs if it is created; `None` if the job does not set it.
    pub fn new_file_bytes(&self) -> Option<u64> {
        match (self.file_bytes, self.size) {
            (Some(bytes), _) => Some(bytes),
            (None, Some(Length::Bytes(bytes))) => Some(self.offset_bytes(0).saturating_add(bytes / self.files())),
            (None, _) => None,
        }
    }

    /// Returns the first byte and the length of the region in a file of `file_bytes`; the length is 0 if the region
    /// begins behind the end.
    pub fn region(&self, file_bytes: u64) -> (u64, u64) {
        let offset = self.offset_bytes(file_bytes);
        let after_bytes = file_bytes.saturating_sub(offset);
        let len_bytes = match self.size {
            Some(Length::Bytes(bytes)) if self.file_bytes.is_none() => (bytes / self.files()).min(after_bytes),
            Some(Length::Percent(percent)) if percent < 100 => {
                let bytes = percent_of(file_bytes, percent).min(after_bytes);
                bytes - bytes % self.unit_bytes.max(1)
            }
            _ => after_bytes,
        };
        (offset, len_bytes)
    }

    /// Returns the bytes after which the job ends, if its regions have `region_bytes` together; `None`: the runtime
    /// ends it.
    pub fn limit_bytes(&self, region_bytes: u64) -> Option<u64> {
        if self.time_based {
            return None;
        }
        let once_bytes = match (self.work, self.size) {
            (Some(work), _) => work.of(region_bytes),
            (None, Some(Length::Bytes(bytes))) => bytes.min(region_bytes),
            (None, _) => region_bytes,
        };
        Some(once_bytes.saturating_mul(self.loops.max(1)))
    }

    /// Returns the first byte of the clone's region in a file of `file_bytes`.
    pub fn offset_bytes(&self, file_bytes: u64) -> u64 {
        let increment_bytes = self.increment.of(file_bytes).saturating_mul(self.clone_number);
        let offset = self.offset.of(file_bytes).saturating_add(increment_bytes);
        match (self.offset, self.increment) {
            (Length::Bytes(_), Length::Bytes(_)) => offset,
            _ => offset.checked_next_multiple_of(self.offset_unit_bytes.max(1)).unwrap_or(u64::MAX),
        }
    }
}

/// Returns a file's name. As in fio, other words that begin with `$` stay unchanged, and `$clientuid` is empty.
fn expand(format: &str, job_name: &str, clone_number: u64, file_number: u32) -> String {
    let (clone_number, file_number) = (clone_number.to_string(), file_number.to_string());
    let words = [("$jobname", job_name), ("$jobnum", &clone_number), ("$filenum", &file_number), ("$clientuid", "")];

    let (mut name, mut rest) = (String::new(), format);
    while let Some(letter) = rest.chars().next() {
        let (word, value) = words.into_iter().find(|(word, _)| rest.starts_with(word)).unwrap_or_else(|| {
            let letter = &rest[..letter.len_utf8()];
            (letter, letter)
        });
        name.push_str(value);
        rest = &rest[word.len()..];
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn regions_follow_size_offset_and_number_of_files() {
        use Length::{Bytes, Percent};
        let set = FileSet::default;
        for (set, file_bytes, region, limit) in [
            (set(), MIB, (0, MIB), Some(MIB)),
            (FileSet { size: Some(Bytes(4096)), ..set() }, MIB, (0, 4096), Some(4096)),
            (FileSet { size: Some(Bytes(4 * MIB)), ..set() }, MIB, (0, MIB), Some(MIB)),
            (FileSet { size: Some(Bytes(8192)), count: 2, ..set() }, MIB, (0, 4096), Some(4096)),
            (FileSet { size: Some(Percent(30)), unit_bytes: 4096, ..set() }, MIB, (0, 76 * 4096), Some(76 * 4096)),
            (FileSet { size: Some(Percent(100)), ..set() }, MIB, (0, MIB), Some(MIB)),
            (FileSet { offset: Percent(50), size: Some(Percent(80)), ..set() }, MIB, (MIB / 2, MIB / 2), Some(MIB / 2)),
            (
                FileSet { offset: Percent(10), offset_unit_bytes: 65536, ..set() },
                MIB,
                (2 << 16, 14 << 16),
                Some(14 << 16),
            ),
            (FileSet { increment: Percent(25), clone_number: 3, ..set() }, MIB, (3 * MIB / 4, MIB / 4), Some(MIB / 4)),
            (FileSet { offset: Bytes(2 * MIB), ..set() }, MIB, (2 * MIB, 0), Some(0)),
            (FileSet { file_bytes: Some(MIB), size: Some(Bytes(4096)), ..set() }, MIB, (0, MIB), Some(4096)),
            (FileSet { work: Some(Bytes(3 * MIB)), loops: 2, ..set() }, MIB, (0, MIB), Some(6 * MIB)),
            (FileSet { work: Some(Percent(50)), ..set() }, MIB, (0, MIB), Some(MIB / 2)),
            (FileSet { time_based: true, ..set() }, MIB, (0, MIB), None),
        ] {
            assert_eq!((set.region(file_bytes), set.limit_bytes(region.1)), (region, limit), "{set:?}");
        }
    }

    /// The names are those of fio 3.33.
    #[test]
    fn clones_name_their_files() {
        let names = |format: &str, count, number| {
            let set =
                FileSet { name_format: Some(format.to_owned()), directory: "d".into(), count, ..FileSet::default() };
            let named = set.of_clone("j", number).named;
            named.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("$jobname.$jobnum.$filenum", 2, 3), ["d/j.3.0", "d/j.3.1"]);
        assert_eq!(names("x$clientuid.$jobnumX$filenumY", 1, 0), ["d/x.0X0Y"]);
        assert_eq!(names("b$foo$$jobnameé", 1, 0), ["d/b$foo$jé"]);
        assert_eq!(names("/one", 4, 1), ["d/one"], "files of one name are one");
        let named = FileSet { named: vec!["f".into()], name_format: Some("x".to_owned()), ..FileSet::default() };
        assert_eq!(named.of_clone("j", 7), FileSet { clone_number: 7, ..named.clone() });
    }

    #[test]
    fn new_files_hold_all_regions() {
        let set = FileSet { size: Some(Length::Bytes(8 * MIB)), ..FileSet::default() };
        assert_eq!(FileSet::default().new_file_bytes(), None);
        assert_eq!(set.new_file_bytes(), Some(8 * MIB));
        let third = FileSet { increment: Length::Bytes(MIB), clone_number: 2, ..set.clone() };
        assert_eq!(third.new_file_bytes(), Some(10 * MIB));
        assert_eq!(FileSet { count: 4, ..set.clone() }.new_file_bytes(), Some(2 * MIB));
        assert_eq!(FileSet { file_bytes: Some(MIB), ..set }.new_file_bytes(), Some(MIB));
    }
}
