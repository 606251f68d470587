use super::*;
use crate::{Content, ContentMaker};

struct Place(tempfile::TempDir);

impl Place {
    fn new(files: &[(&str, &[u8])]) -> Place {
        let directory = tempfile::tempdir().unwrap();
        for (name, data) in files {
            std::fs::write(directory.path().join(name), data).unwrap();
        }
        Place(directory)
    }

    fn examine(&self, name: &str, block_bytes: &[u32], samples: u32) -> Result<Examination, ExamineError> {
        let options = Options { block_bytes: block_bytes.to_vec(), samples, seed: 3 };
        examine(&self.0.path().join(name), &options, &Stop::default(), &mut |part| assert!((0.0..=1.0).contains(&part)))
    }
}

fn examined(data: &[u8], block_bytes: u32, samples: u32) -> Result<Examination, ExamineError> {
    Place::new(&[("data", data)]).examine("data", &[block_bytes], samples)
}

fn made(compressible_pct: u8, len_bytes: usize) -> Vec<u8> {
    let mut data = vec![0; len_bytes];
    ContentMaker::new(Content { compressible_pct }, 1).fill(&mut data);
    data
}

#[test]
fn random_data_does_not_shrink() {
    let examination = examined(&made(0, 1 << 20), 8192, 1000).unwrap();
    let report = &examination.blocks[0];
    assert_eq!((report.samples, report.zero_blocks, report.duplicate_blocks), (128, 0, 0));
    assert!(report.entropy_bits_per_byte > 7.99, "{}", report.entropy_bits_per_byte);
    for compressed in [&report.lz4, &report.deflate] {
        assert_eq!((compressed.histogram[BINS - 1], compressed.median_bytes), (128, 8192));
        assert_eq!((compressed.mean_ratio, compressed.saved_pct), (1.0, 0.0));
    }
    assert!(examination.summary().contains("encrypted or compressed already"));
}

#[test]
fn half_of_the_data_is_saved() {
    let examination = examined(&made(50, 1 << 20), 8192, 40).unwrap();
    let report = &examination.blocks[0];
    assert_eq!(report.samples, 40);
    assert!((report.lz4.saved_pct - 50.0).abs() < 3.0 && (report.deflate.saved_pct - 50.0).abs() < 3.0);
    assert!((report.lz4.mean_ratio - 2.0).abs() < 0.1);
    assert_eq!(report.lz4.histogram[4] + report.lz4.histogram[5], 40);
    let summary = examination.summary();
    assert!(summary.starts_with("Blocks of 8 KiB become 4") && summary.contains("`compressible: "), "{summary}");
}

#[test]
fn zeros_and_duplicates_are_counted() {
    let mut data = vec![0; 4 * 4096];
    data.extend(made(0, 4096).repeat(3));
    data.extend([1; 100]);
    let report = &examined(&data, 4096, 100).unwrap().blocks[0];
    assert_eq!((report.samples, report.zero_blocks, report.duplicate_blocks), (7, 4, 2));
    let zeros = examined(&[0; 8192], 4096, 100).unwrap();
    assert_eq!(zeros.blocks[0].entropy_bits_per_byte, 0.0);
    assert!(zeros.summary().contains("zeros"));
}

#[test]
fn samples_are_spread_and_distinct() {
    for (blocks, samples) in [(1, 1), (7, 100), (100, 7), (1 << 50, 1000)] {
        let numbers: Vec<_> = sample_numbers(blocks, samples, 5).collect();
        assert_eq!(numbers.len() as u64, blocks.min(u64::from(samples)));
        assert!(numbers.is_sorted_by(|a, b| a < b) && numbers.last().is_some_and(|&last| last < blocks));
    }
}

#[test]
fn a_file_that_shrinks_is_told() {
    let place = Place::new(&[("a", &[1; 8192])]);
    let data = Data::open(&place.0.path().join("a")).unwrap();
    std::fs::write(place.0.path().join("a"), [1; 4096]).unwrap();
    let mut block = [0; 4096];
    assert!(data.read(0, &mut block).is_ok() && block == [1; 4096]);
    assert!(matches!(data.read(1, &mut block), Err(ExamineError::Read { .. })));
}

#[test]
fn what_was_read_until_the_end_is_kept() {
    let place = Place::new(&[("data", &made(0, 1 << 20))]);
    let stop = Stop::default();
    let mut heard = 0;
    let options = Options { block_bytes: vec![4096, 8192], ..Options::default() };
    let examination = examine(&place.0.path().join("data"), &options, &stop, &mut |_| {
        heard += 1;
        if heard == 10 {
            stop.ask();
        }
    });
    let examination = examination.unwrap();
    assert!(examination.interrupted);
    assert_eq!((examination.blocks.len(), examination.blocks[0].samples), (1, 10));
    let stopped = examine(&place.0.path().join("data"), &options, &stop, &mut |_| ());
    assert!(matches!(stopped, Err(ExamineError::Interrupted)));
}

#[test]
fn tables_are_complete() {
    let place = Place::new(&[("data", &made(30, 1 << 16))]);
    let examination = place.examine("data", &[4096, 8192], 10).unwrap();
    let mut tables = examination.tables();
    assert_eq!(tables.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [2, 4, BINS]);
    assert_eq!(tables[2].rows[10][0], "does not shrink");
    tables.push(examination.csv());
    for table in &tables {
        assert!(table.rows.iter().all(|row| row.len() == table.headers.len()), "{}", table.caption);
    }
}

#[test]
fn what_cannot_be_examined_is_said() {
    let place = Place::new(&[("short", b"short"), ("empty", b"")]);
    let cases = [
        ("short", 4096, 1, "has 5 bytes, less than one block of 4096"),
        ("", 4096, 1, "is no file or block device"),
        ("empty", 4096, 1, "empty is empty: there is nothing to examine"),
        ("missing", 4096, 1, "missing: No such file"),
        ("short", 0, 1, "blocks of 0 bytes cannot be examined: choose a power of two from 512 to 16777216"),
        ("short", 5000, 1, "a power of two"),
        ("short", 256, 1, "a power of two"),
        ("short", 1 << 25, 1, "a power of two"),
        ("short", 512, 0, "choose 1 to 1000000"),
    ];
    for (name, block_bytes, samples, said) in cases {
        let error = place.examine(name, &[block_bytes], samples).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(matches!(place.examine("short", &[], 1), Err(ExamineError::Block(0))));
    let null = examine("/dev/null".as_ref(), &Options::default(), &Stop::default(), &mut |_| ());
    assert!(matches!(null, Err(ExamineError::NotData(_))));
}
