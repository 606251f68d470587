//! Times between reports and samples.
//!
//! # Why
//! `iostat -t` prints times by the locale, `date` in another format, a support bundle's script in a third one. Without
//! the times, counters have no rates.
//!
//! # How it works
//! [`parse`] splits a line into a time of day, a date, a zone, names of days and months, and words of separators. The
//! line is a time only if every word is one of these. `03/04/2024` is in April or March: [`DayOrder::of`] searches the
//! whole text for a day above 12, so that one file has one order.
//!
//! # Limits
//! Without a zone, a time is taken as UTC, and zones by abbreviation (`CEST`) are ignored: differences are right except
//! across changes of the clock. If the order is undecided, the month is first with slashes, the day with points.
//!
//! # Example
//! `03/14/2024 05:53:14 PM`, `2024-03-14T17:53:14+0000`, `zzz ***Thu Mar 14 17:53:14 UTC 2024` and `1710438794` are the
//! same.

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A time, to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stat) struct Stamp {
    /// Milliseconds since the moment `since`.
    pub ms: i64,
    /// The moment from which `ms` counts.
    pub since: Since,
}

/// The moment from which a [`Stamp`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stat) enum Since {
    /// 1970, in UTC.
    Epoch,
    /// 1970, by a clock whose zone is not known.
    LocalEpoch,
    /// Midnight: there is no date.
    Midnight,
    /// The start of the host.
    Boot,
}

impl Stamp {
    /// Returns milliseconds since 1970, with local clocks taken as UTC; `None` without a date.
    pub(in crate::stat) fn unix_ms(self) -> Option<u64> {
        let is_epoch = matches!(self.since, Since::Epoch | Since::LocalEpoch);
        u64::try_from(self.ms).ok().filter(|_| is_epoch)
    }

    /// Returns the seconds since `earlier`; `None` if the two cannot be compared, or the difference is not above 0.
    /// Between times of day the difference may pass midnight once.
    pub(in crate::stat) fn seconds_since(self, earlier: Stamp) -> Option<f64> {
        if self.since != earlier.since {
            return None;
        }
        let ms = self.ms.checked_sub(earlier.ms)?;
        let ms = if self.since == Since::Midnight { ms.rem_euclid(DAY_MS) } else { ms };
        (ms > 0).then_some(ms as f64 / 1000.0)
    }
}

/// Whether the day is before the month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::stat) enum DayOrder {
    /// Undecided: the separator decides.
    #[default]
    Unknown,
    /// `14/03/2024`.
    DayFirst,
    /// `03/14/2024`.
    MonthFirst,
}

impl DayOrder {
    /// Returns the order of the first date of a text with a day above 12.
    pub(in crate::stat) fn of(text: &str) -> DayOrder {
        let orders = text.split_whitespace().filter_map(|word| {
            let (numbers, separator) = date_numbers(word)?;
            match numbers {
                // A version of a kernel has points, too.
                [_, _, third] if separator != '/' && third < 1000 => None,
                [first, second, _] if first > 12 && first <= 31 && second <= 12 => Some(DayOrder::DayFirst),
                [first, second, _] if second > 12 && second <= 31 && first <= 12 => Some(DayOrder::MonthFirst),
                _ => None,
            }
        });
        orders.into_iter().next().unwrap_or_default()
    }
}

/// Parses a line that is a time as a whole; `None` if it has any other word.
pub(in crate::stat) fn parse(line: &str, order: DayOrder) -> Option<Stamp> {
    if line.len() > 120 {
        return None;
    }
    let plain = line.replace(['年', '月'], "-").replace(['日', '秒'], " ").replace(['时', '時', '分'], ":");
    let is_decoration = |c: char| c.is_whitespace() || matches!(c, '*' | '#' | '=' | '>' | '<' | '[' | ']' | ',' | '@');
    let words: Vec<&str> = plain.split(is_decoration).filter(|word| word.bytes().any(|byte| byte != b'-')).collect();
    if let Some(stamp) = since_epoch(&words).or_else(|| since_boot(&words)) {
        return Some(stamp);
    }
    let mut parts = Parts::default();
    for word in words {
        parts.take(word, order)?;
    }
    parts.stamp()
}

/// Parses the time at the begin of a line, and returns it with the rest; `None` without one, or if the line is a time
/// as a whole.
pub(in crate::stat) fn before(line: &str, order: DayOrder) -> Option<(Stamp, &str)> {
    /// Most words of a time.
    const WORDS_MAX: usize = 7;
    let first = line.split_whitespace().next()?;
    let is_number = first.len() >= 10 && first.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !is_number && !line.bytes().take(48).any(|byte| byte == b':') || parse(line, order).is_some() {
        return None;
    }

    let (mut found, mut end) = (None, 0);
    for _ in 0..WORDS_MAX {
        let rest = line.get(end..)?.trim_start();
        let word = rest.split_whitespace().next()?;
        // A word in capitals after a time is its zone, or the name of another program's column.
        let is_name = word.bytes().all(|byte| byte.is_ascii_uppercase());
        if is_name && found.is_some() && !matches!(word, "AM" | "PM" | "UTC") && !word.ends_with('T') {
            break;
        }
        end = line.len() - rest.len() + word.len();
        let (begin, behind) = line.split_at_checked(end)?;
        if behind.trim().is_empty() {
            break;
        }
        let stamp = parse(begin.trim_end_matches([':', '|']), order).filter(|stamp| stamp.since != Since::Boot);
        found = stamp.map(|stamp| (stamp, behind)).or(found);
    }
    found
}

/// Parses a single number of seconds, milliseconds, microseconds or nanoseconds since 1970.
fn since_epoch(words: &[&str]) -> Option<Stamp> {
    let word = match words {
        [word] => word,
        [label, word] if is_label(label) => word,
        _ => return None,
    };
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || (!fraction.is_empty() && whole.len() != 10) {
        return None;
    }
    let number: i64 = whole.parse().ok()?;
    let ms = match whole.len() {
        10 => number * 1000 + (format!("0.{fraction}0").parse::<f64>().ok()? * 1000.0).round() as i64,
        13 => number,
        16 => number / 1000,
        19 => number / 1_000_000,
        _ => return None,
    };
    Some(Stamp { ms, since: Since::Epoch })
}

/// Parses `/proc/uptime`: seconds since boot and idle seconds, both with two decimals.
fn since_boot(words: &[&str]) -> Option<Stamp> {
    let [up, idle] = words else { return None };
    let seconds = |word: &str| {
        let (whole, decimals) = word.split_once('.')?;
        let is_number = whole.bytes().chain(decimals.bytes()).all(|byte| byte.is_ascii_digit()) && decimals.len() == 2;
        word.parse::<f64>().ok().filter(|_| is_number)
    };
    let _ = seconds(idle)?;
    Some(Stamp { ms: (seconds(up)? * 1000.0).round() as i64, since: Since::Boot })
}

fn is_label(word: &str) -> bool {
    let name = word.trim_end_matches(':').to_ascii_lowercase();
    matches!(name.as_str(), "zzz" | "time" | "date" | "timestamp" | "ts" | "sample" | "epoch" | "at")
}

/// Parses the three numbers of a date, and their separator.
fn date_numbers(word: &str) -> Option<([i64; 3], char)> {
    let separator = word.chars().find(|c| matches!(c, '/' | '-' | '.'))?;
    let mut numbers = word.trim_end_matches(['.', '-']).split(separator).map(|part| {
        let is_digits = matches!(part.len(), 1..=4) && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<i64>().ok().filter(|_| is_digits)
    });
    let found = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some((found, separator))
}

fn date(word: &str, order: DayOrder) -> Option<Date> {
    let ([first, second, third], separator) = date_numbers(word)?;
    let (year, month, day) = match order {
        _ if first > 31 => (first, second, third),
        // With hyphens the year is first, also one of two digits: 24-03-14.
        _ if separator == '-' && third <= 31 => (first, second, third),
        DayOrder::DayFirst => (third, second, first),
        DayOrder::MonthFirst => (third, first, second),
        DayOrder::Unknown if separator == '.' => (third, second, first),
        DayOrder::Unknown => (third, first, second),
    };
    let year = if year < 100 { year + 2000 } else { year };
    Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

/// The parts of a time found in a line.
#[derive(Default)]
struct Parts {
    time: Option<Time>,
    date: Option<Date>,
    is_afternoon: Option<bool>,
    /// Seconds east of Greenwich.
    offset_s: Option<i64>,
    month: Option<i8>,
    /// The day and the year beside the name of a month.
    numbers: Vec<i16>,
}

impl Parts {
    /// Takes a word; `None` if it is no part of a time, or that part was taken already.
    fn take(&mut self, word: &str, order: DayOrder) -> Option<()> {
        if let Some((day, time)) = word.split_once('T').filter(|(day, _)| date(day, order).is_some()) {
            set(&mut self.date, date(day, order)?)?;
            return self.take_time(time);
        }
        if word.contains(':') && word.starts_with(|c: char| c.is_ascii_digit()) {
            return self.take_time(word);
        }
        if let Some(day) = date(word, order) {
            return set(&mut self.date, day);
        }
        if let Some(offset_s) = offset_s(word) {
            return set(&mut self.offset_s, offset_s);
        }
        self.take_name(word)
    }

    /// Takes a time of day with its suffix: `17:53:14.25+0100`, `5:53:14PM`.
    fn take_time(&mut self, word: &str) -> Option<()> {
        let end = word.find(|c: char| !c.is_ascii_digit() && !matches!(c, ':' | '.' | ',')).unwrap_or(word.len());
        let (clock, rest) = (word.get(..end)?, word.get(end..)?);
        let mut parts = clock.trim_end_matches([':', '.']).split(':');
        let (hour, minute) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (second, fraction) = match parts.next() {
            Some(text) => text.split_once(['.', ',']).unwrap_or((text, "0")),
            None => ("0", "0"),
        };
        let nanosecond = (format!("0.{fraction}").parse::<f64>().ok()? * 1e9) as i32;
        set(&mut self.time, Time::new(hour, minute, second.parse().ok()?, nanosecond).ok()?)?;
        match offset_s(rest) {
            _ if rest.is_empty() => Some(()),
            Some(offset_s) => set(&mut self.offset_s, offset_s),
            None => self.take_name(rest),
        }
    }

    fn take_name(&mut self, word: &str) -> Option<()> {
        const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
        const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let name: String = word.to_lowercase().replace('.', "");
        if let Ok(number) = name.parse::<i16>() {
            self.numbers.push(number);
            return (self.numbers.len() <= 2).then_some(());
        }
        match name.as_str() {
            "am" | "a" => set(&mut self.is_afternoon, false),
            "pm" | "p" => set(&mut self.is_afternoon, true),
            // The rest of `p. m.`.
            "m" if self.is_afternoon.is_some() => Some(()),
            _ if is_label(word) || DAYS.iter().any(|day| name.starts_with(day) && name.len() <= 9) => Some(()),
            _ => match MONTHS.iter().zip(1..).find(|(month, _)| name.starts_with(*month) && name.len() <= 9) {
                Some((_, number)) => set(&mut self.month, number),
                None => (matches!(word.len(), 2..=5) && word.bytes().all(|b| b.is_ascii_uppercase())).then_some(()),
            },
        }
    }

    fn stamp(self) -> Option<Stamp> {
        let time = self.time?;
        let hour = match self.is_afternoon {
            Some(is_afternoon) => time.hour().rem_euclid(12) + if is_afternoon { 12 } else { 0 },
            None => time.hour(),
        };
        let time = Time::new(hour, time.minute(), time.second(), time.subsec_nanosecond()).ok()?;

        let date = match (self.date, self.month, self.numbers.as_slice()) {
            (Some(date), None, []) => date,
            (None, Some(month), [day, year]) if *day <= 31 && *year >= 1970 => {
                Date::new(*year, month, i8::try_from(*day).ok()?).ok()?
            }
            // `Mar 04 10:00:01` has no year: only the time of day counts.
            (None, None, []) | (None, Some(_), [1..=31]) => {
                let midnight = Date::new(1970, 1, 1).ok()?.to_datetime(time).to_zoned(TimeZone::UTC).ok()?;
                return Some(Stamp { ms: midnight.timestamp().as_millisecond(), since: Since::Midnight });
            }
            _ => return None,
        };
        let at: Timestamp = date.to_datetime(time).to_zoned(TimeZone::UTC).ok()?.timestamp();
        Some(match self.offset_s {
            Some(offset_s) => Stamp { ms: at.as_millisecond() - offset_s * 1000, since: Since::Epoch },
            None => Stamp { ms: at.as_millisecond(), since: Since::LocalEpoch },
        })
    }
}

fn set<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

/// Parses a zone: `Z`, `UTC`, `GMT`, `+0100`, `-07:00`, `+01`. Returns seconds east of Greenwich.
fn offset_s(word: &str) -> Option<i64> {
    if matches!(word, "Z" | "UTC" | "GMT") {
        return Some(0);
    }
    let (sign, digits) = match word.split_at_checked(1)? {
        ("+", digits) => (1, digits.replace(':', "")),
        ("-", digits) => (-1, digits.replace(':', "")),
        _ => return None,
    };
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    let (hours, minutes) = if digits.len() == 2 { (number, 0) } else { (number / 100, number % 100) };
    Some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_MS: i64 = 1_710_438_794_000;

    #[test]
    fn one_moment_in_many_ways() {
        let any = DayOrder::Unknown;
        for (line, order, ms, since) in [
            ("1710438794", any, AT_MS, Since::Epoch),
            ("1710438794.250", any, AT_MS + 250, Since::Epoch),
            ("1710438794250", any, AT_MS + 250, Since::Epoch),
            ("1710438794250000000", any, AT_MS + 250, Since::Epoch),
            ("zzz 1710438794", any, AT_MS, Since::Epoch),
            (">>> 1710438794.011 <<<", any, AT_MS + 11, Since::Epoch),
            ("zzz ***Thu Mar 14 17:53:14 UTC 2024", any, AT_MS, Since::Epoch),
            ("zzz ***Thu Mar 14 17:53:14 EDT 2024", any, AT_MS, Since::LocalEpoch),
            ("Thu Mar 14 05:53:14 PM UTC 2024", any, AT_MS, Since::Epoch),
            ("Thu 14 Mar 2024 05:53:14 PM UTC", any, AT_MS, Since::Epoch),
            ("2024-03-14T17:53:14+0000", any, AT_MS, Since::Epoch),
            ("2024-03-14T10:53:14-0700", any, AT_MS, Since::Epoch),
            ("2024-03-14T18:53:14.5+01:00", any, AT_MS + 500, Since::Epoch),
            ("2024-03-14T17:53:14Z", any, AT_MS, Since::Epoch),
            ("2024-03-14 17:53:14", any, AT_MS, Since::LocalEpoch),
            ("03/14/24 17:53:14", any, AT_MS, Since::LocalEpoch),
            ("03/14/2024 05:53:14 PM", any, AT_MS, Since::LocalEpoch),
            ("03/14/2024 05:53:14\u{202f}PM", any, AT_MS, Since::LocalEpoch),
            ("14/03/24 17:53:14", DayOrder::DayFirst, AT_MS, Since::LocalEpoch),
            ("14.03.2024 17:53:14", any, AT_MS, Since::LocalEpoch),
            ("14/03/2024 05:53:14 p. m.", DayOrder::DayFirst, AT_MS, Since::LocalEpoch),
            ("2024年03月14日 17时53分14秒", any, AT_MS, Since::LocalEpoch),
            ("### 2024-03-14 17:53:14 ###", any, AT_MS, Since::LocalEpoch),
            ("Time: 05:53:14 PM", any, 64_394_000, Since::Midnight),
            ("Mar 14 17:53:14", any, 64_394_000, Since::Midnight),
            ("12:00:01 AM", any, 1_000, Since::Midnight),
            ("350735.47 234388.90", any, 350_735_470, Since::Boot),
        ] {
            assert_eq!(parse(line, order), Some(Stamp { ms, since }), "{line}");
        }
    }

    #[test]
    fn other_lines_are_no_times() {
        for line in [
            "",
            "sda",
            "17",
            "0.00 1.00 2.00",
            "446216 784926",
            "17:53:14 sda",
            "25:00:00",
            "2024-13-40 17:53:14",
            "Thu Mar 14",
            "03/14/2024",
            "+99 +99 12:00:00",
            "1710438794.x",
        ] {
            assert_eq!(parse(line, DayOrder::Unknown), None, "{line}");
        }
    }

    #[test]
    fn times_before_something_else() {
        for (line, rest) in [
            ("Mar 04 10:00:01 sda 1.00", Some(" sda 1.00")),
            ("Mar 04 10:00:01 8 0 sda 1", Some(" 8 0 sda 1")),
            ("2024-03-14T10:00:00Z   8 0 sda", Some("   8 0 sda")),
            ("1710438794 8 0 sda", Some(" 8 0 sda")),
            ("[2023-01-05 10:11:12] Device: r/s", Some(" Device: r/s")),
            ("10:00:01 AM: sda 1.00", Some(" sda 1.00")),
            ("12:00:01 AM DEV tps", Some(" DEV tps")),
            ("03/14/2024 05:53:14 PM", None),
            ("8 0 sda 17", None),
            ("root@db7:~# iostat", None),
        ] {
            assert_eq!(before(line, DayOrder::Unknown).map(|(_, rest)| rest), rest, "{line}");
        }
    }

    #[test]
    fn a_text_has_one_order_of_days() {
        assert_eq!(DayOrder::of("Linux 5.8 (host) 12/02/2021\n14/02/2021 10:00:00"), DayOrder::DayFirst);
        assert_eq!(DayOrder::of("02/03/21 and 02/14/21"), DayOrder::MonthFirst);
        assert_eq!(DayOrder::of("02/03/21"), DayOrder::Unknown);
        assert_eq!(DayOrder::of("2024-03-14"), DayOrder::Unknown);
        assert_eq!(DayOrder::of("Linux 6.18.44"), DayOrder::Unknown);
    }

    #[test]
    fn differences() {
        let at = |line| parse(line, DayOrder::Unknown).expect(line);
        assert_eq!(at("1710438795.5").seconds_since(at("1710438794")), Some(1.5));
        assert_eq!(at("00:00:01").seconds_since(at("23:59:59")), Some(2.0));
        assert_eq!(at("1710438794").seconds_since(at("1710438794")), None);
        assert_eq!(at("1710438793").seconds_since(at("1710438794")), None);
        assert_eq!(at("12:00:00").seconds_since(at("1710438794")), None);
    }
}
