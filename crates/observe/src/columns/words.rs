//! A column of texts as a dictionary and the number of each row's text.
//!
//! **Why.** The texts of a million rows are few: names, reasons, paths. The encoder of the crate `parquet` hashes the
//! text of each row, and a row of spans has five.
//!
//! **How.** Where rows have a number for each text, a text is looked up once for each number. A group of rows becomes
//! two pages: the texts, one after the other (`PLAIN`), and the numbers (`RLE_DICTIONARY`), as runs of one number, or
//! packed in as few bits as the largest needs.
//!
//! **Limits.** The texts of a group are held in memory. They have no bounds: nearly every group has all texts, so a
//! reader could skip no group by them.
//!
//! **Example.** Ten rows of `read` are the dictionary `04 00 00 00 72 65 61 64` and the page `00 14`: numbers of no
//! bits, and a run of 10.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;

use bytes::Bytes;
use foldhash::fast::RandomState;
use parquet::basic::{Compression, Encoding, EncodingMask};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::parquet::Held;

/// Values that are packed together, and fewest of a run.
const PACK_VALUES: usize = 8;

/// The texts of a column in the group that is being collected.
pub(crate) struct Words {
    /// The number in `dictionary` of each row's text.
    numbers: Held<u32>,
    dictionary: Dictionary,
}

#[derive(Default)]
struct Dictionary {
    /// The texts as in their page.
    page: Vec<u8>,
    of_text: HashMap<String, u32, RandomState>,
    /// By the number that rows have for a text; `None`: it has none.
    of_number: HashMap<u32, Option<u32>, RandomState>,
    latest: Option<(u32, Option<u32>)>,
}

impl Dictionary {
    fn text(&mut self, text: &str) -> u32 {
        if let Some(known) = self.of_text.get(text) {
            return *known;
        }
        let new = self.of_text.len() as u32;
        self.of_text.insert(text.to_owned(), new);
        self.page.extend((text.len() as u32).to_le_bytes());
        self.page.extend(text.as_bytes());
        new
    }

    #[inline]
    fn number<'a>(&mut self, number: u32, text: impl FnOnce() -> Option<Cow<'a, str>>) -> Option<u32> {
        match self.latest {
            Some((latest, word)) if latest == number => word,
            _ => self.new_number(number, text),
        }
    }

    fn new_number<'a>(&mut self, number: u32, text: impl FnOnce() -> Option<Cow<'a, str>>) -> Option<u32> {
        let word = match self.of_number.get(&number) {
            Some(known) => *known,
            None => {
                let word = text().map(|text| self.text(&text));
                self.of_number.insert(number, word);
                word
            }
        };
        self.latest = Some((number, word));
        word
    }
}

impl Words {
    pub(super) fn new(is_optional: bool) -> Words {
        Words { numbers: Held::new(is_optional), dictionary: Dictionary::default() }
    }

    pub(crate) fn add<R, C>(
        &mut self,
        rows: &[R],
        shared: &C,
        of: impl for<'a> Fn(&'a R, &'a C) -> Option<Cow<'a, str>>,
    ) {
        let dictionary = &mut self.dictionary;
        self.numbers.add(rows, shared, |row, shared| of(row, shared).map(|text| dictionary.text(&text)));
    }

    pub(crate) fn add_numbered<R, C>(
        &mut self,
        rows: &[R],
        shared: &C,
        number: impl Fn(&R) -> u32,
        of: impl for<'a> Fn(&'a R, &'a C) -> Option<Cow<'a, str>>,
    ) {
        let dictionary = &mut self.dictionary;
        self.numbers.add(rows, shared, |row, shared| dictionary.number(number(row), || of(row, shared)));
    }

    /// Writes the column of a group, and forgets its texts.
    pub(super) fn write<W: Write + Send>(
        &mut self,
        column: ColumnDescPtr,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let Words { numbers, dictionary } = self;
        let texts = dictionary.of_text.len();
        let rows = numbers.rows();

        let mut data = Vec::new();
        if let Some(levels) = numbers.levels() {
            data.extend([0; 4]);
            encode(&mut data, 1, levels, |level| level as u32);
            let len_bytes = data.len() as u32 - 4;
            data[..4].copy_from_slice(&len_bytes.to_le_bytes());
        }
        let width_bits = u32::BITS - (texts.saturating_sub(1) as u32).leading_zeros();
        data.push(width_bits as u8);
        encode(&mut data, width_bits, numbers.values(), |number| number);

        let mut out = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut out);
        let page = Page::DictionaryPage {
            buf: compressed(&dictionary.page)?,
            num_values: texts as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let texts_written = pages.write_page(CompressedPage::new(page, dictionary.page.len()))?;
        let page = Page::DataPage {
            buf: compressed(&data)?,
            num_values: rows as u32,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let data_written = pages.write_page(CompressedPage::new(page, data.len()))?;

        let encodings = [Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY];
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression(Compression::SNAPPY)
            .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
            .set_num_values(rows as i64)
            .set_dictionary_page_offset(Some(texts_written.offset as i64))
            .set_data_page_offset(data_written.offset as i64)
            .set_total_compressed_size((texts_written.compressed_size + data_written.compressed_size) as i64)
            .set_total_uncompressed_size((texts_written.uncompressed_size + data_written.uncompressed_size) as i64)
            .build()?;
        let bytes = Bytes::from(out.into_inner()?);
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        group.append_column(&bytes, closed)?;

        self.numbers.clear();
        self.dictionary = Dictionary::default();
        Ok(())
    }
}

fn compressed(bytes: &[u8]) -> Result<Bytes, ParquetError> {
    let compressed = snap::raw::Encoder::new().compress_vec(bytes);
    compressed.map(Bytes::from).map_err(|error| ParquetError::External(Box::new(error)))
}

/// Appends numbers of `width_bits` in Parquet's hybrid of runs and packed numbers. A run is a varint (twice its length)
/// and the number in whole bytes. Packed numbers are a varint (twice the number of packs, and 1) and the bits, lowest
/// first; only the last pack may be filled up.
fn encode<T: Copy + PartialEq>(out: &mut Vec<u8>, width_bits: u32, values: &[T], number: impl Fn(T) -> u32) {
    // Numbers from `packed` to `at` wait to be packed.
    let (mut packed, mut at) = (0, 0);
    while at < values.len() {
        let value = values[at];
        let run = values[at..].iter().take_while(|other| **other == value).count();
        // A run completes the last pack before it.
        let filler = (at - packed).next_multiple_of(PACK_VALUES) - (at - packed);
        if run >= filler + PACK_VALUES {
            pack(out, width_bits, &values[packed..at + filler], &number);
            varint(out, (run - filler) << 1);
            out.extend(&number(value).to_le_bytes()[..width_bits.div_ceil(8) as usize]);
            packed = at + run;
        }
        at += run;
    }
    pack(out, width_bits, &values[packed..], &number);
}

fn pack<T: Copy>(out: &mut Vec<u8>, width_bits: u32, values: &[T], number: impl Fn(T) -> u32) {
    if values.is_empty() {
        return;
    }
    let packs = values.len().div_ceil(PACK_VALUES);
    varint(out, packs << 1 | 1);
    let end = out.len() + packs * width_bits as usize;

    let (mut bits, mut held_bits) = (0_u64, 0);
    for value in values {
        bits |= u64::from(number(*value)) << held_bits;
        held_bits += width_bits;
        while held_bits >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held_bits -= 8;
        }
    }
    if held_bits > 0 {
        out.push(bits as u8);
    }
    out.resize(end, 0);
}

fn varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::SerializedFileReader;
    use parquet::record::Field;
    use plimsoll_sim::rng::Rng;

    use super::super::parquet::{GROUP_ROWS, Parquet};
    use super::super::{Column, known, maybe, name_cell, text, text_cell};
    use super::*;

    /// A row: its text is that of its number; 0 has none.
    static TEXTS: [Column<u32, ()>; 3] = [
        known("known", text_cell!(|it: &u32, ()| text(format!("text {it}")))),
        maybe("maybe", text_cell!(|it: &u32, ()| (*it > 0).then(|| format!("text {it}").into()))),
        maybe("numbered", name_cell!(|it: &u32| *it, |it, ()| (*it > 0).then(|| format!("text {}", it / 2).into()))),
    ];

    /// Writes rows, and compares what a reader finds.
    fn check(rows: &[u32]) {
        let file = tempfile::tempfile().unwrap();
        let mut parquet = Parquet::begin(file.try_clone().unwrap(), &TEXTS, &[]).unwrap();
        rows.chunks(100).for_each(|rows| parquet.push(rows, &()));
        parquet.finish().unwrap();

        let mut found = SerializedFileReader::new(file).unwrap().into_iter().map(Result::unwrap);
        for (at, number) in rows.iter().enumerate() {
            let maybe = |text: u32| if *number > 0 { Field::Str(format!("text {text}")) } else { Field::Null };
            let expected = [Field::Str(format!("text {number}")), maybe(*number), maybe(number / 2)];
            let row = found.next().unwrap();
            assert!(row.get_column_iter().map(|(_, field)| field).eq(&expected), "row {at}: {row}, {number}");
        }
        assert!(found.next().is_none());
    }

    #[test]
    fn a_row_has_its_own_text() {
        let mut rng = Rng::new(1);
        check(&[]);
        check(&[0; 20]);
        check(&[5; 20]);
        // Numbers of 0 to 10 bits, in runs of all lengths.
        for texts in [1, 2, 3, 9, 40, 300, 1000] {
            for run_max in [1, 3, 9, 40] {
                let mut rows = Vec::new();
                while rows.len() < 2000 {
                    let (number, run) = (rng.below(texts) as u32, 1 + rng.below(run_max) as usize);
                    rows.extend(std::iter::repeat_n(number, run));
                }
                check(&rows);
            }
        }
        // More than a group.
        check(&(0..GROUP_ROWS as u32 + 1001).map(|row| row % 100).collect::<Vec<_>>());
    }

    #[test]
    fn runs_and_packs_are_spelled_as_the_format_says() {
        let cases: [(u32, &[u32], &[u8]); 5] = [
            (0, &[0; 10], &[0x14]),
            // Parquet's own example of packed numbers.
            (3, &[0, 1, 2, 3, 4, 5, 6, 7], &[0x03, 0b1000_1000, 0b1100_0110, 0b1111_1010]),
            // A run completes the pack before it.
            (1, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0x03, 0x01, 0x10, 0x00]),
            // Too short a run behind the pack.
            (1, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 1], &[0x05, 0x01, 0x02]),
            (9, &[300; 200], &[0x90, 0x03, 0x2c, 0x01]),
        ];
        for (width_bits, numbers, expected) in cases {
            let mut out = Vec::new();
            encode(&mut out, width_bits, numbers, |number| number);
            assert_eq!(out, expected, "{numbers:?}");
        }
    }
}
