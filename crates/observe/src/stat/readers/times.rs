//! Times between reports and samples.
//!
//! # Why
//! `iostat -t` prints times by the locale, `date` in another form, our own JSON as ISO 8601. Without the times,
//! counters have no rates.
//!
//! # How it works
//! A line is a time if one of [`FORMS`] fits all of it. `03/04/2024` is in April or March: [`DayOrder::of`] searches
//! the whole text for a day above 12, so that one file has one order. A file without such a day has that of the files
//! beside it.
//!
//! # Limits
//! Without a zone, a time is taken as UTC, and zones by abbreviation (`CEST`) are ignored: differences are right except
//! across changes of the clock. If the order is undecided, the month is first.
//!
//! # Example
//! `03/14/2024 05:53:14 PM`, `2024-03-14T17:53:14+0000`, `zzz ***Thu Mar 14 17:53:14 UTC 2024` and `1710438794` are the
//! same.

use jiff::fmt::strtime;
use jiff::tz::TimeZone;

const DAY_MS: i64 = 86_400_000;

/// The forms of times: of iostat in several locales, of `date`, of ISO 8601, and of iostat before sysstat 10.
const FORMS: [&str; 19] = [
    "%m/%d/%y %I:%M:%S %p",
    "%m/%d/%y %I:%M:%S %p %z",
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %I:%M:%S %p",
    "%d-%m-%Y %H:%M:%S",
    "%Y/%m/%d %H:%M:%S",
    "%Y年%m月%d日 %H时%M分%S秒",
    "%Y年%m月%d日 %H時%M分%S秒",
    "%Y년 %m월 %d일 %H시 %M분 %S초",
    "%a %b %d %H:%M:%S %z %Y",
    "%a %b %d %I:%M:%S %p %z %Y",
    "%a %d %b %Y %I:%M:%S %p %z",
    "Time: %I:%M:%S %p",
    "Time: %H:%M:%S",
];

/// A time, to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stat) struct Stamp {
    pub ms: i64,
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
}

impl Stamp {
    /// Returns milliseconds since 1970, with local clocks taken as UTC; `None` without a date.
    pub(in crate::stat) fn unix_ms(self) -> Option<u64> {
        u64::try_from(self.ms).ok().filter(|_| self.since != Since::Midnight)
    }

    /// Returns the seconds since `earlier`; `None` if the two cannot be compared, or the difference is not above 0.
    /// Between times of day the difference may pass midnight once.
    pub(in crate::stat) fn seconds_since(self, earlier: Stamp) -> Option<f64> {
        let ms = self.ms.checked_sub(earlier.ms).filter(|_| self.since == earlier.since)?;
        let ms = if self.since == Since::Midnight { ms.rem_euclid(DAY_MS) } else { ms };
        (ms > 0).then_some(ms as f64 / 1000.0)
    }
}

/// Whether the day is before the month in dates with slashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::stat) enum DayOrder {
    /// `14/03/2024`.
    DayFirst,
    /// `03/14/2024`, and undecided.
    #[default]
    MonthFirst,
}

impl DayOrder {
    /// Returns the order of the first date of a text with a day above 12.
    pub(in crate::stat) fn of(text: &str) -> Option<DayOrder> {
        dates(text).find_map(|date| match date {
            (13..=31, 1..=12) => Some(DayOrder::DayFirst),
            (1..=12, 13..=31) => Some(DayOrder::MonthFirst),
            _ => None,
        })
    }
}

/// Returns whether a text has dates with slashes.
pub(in crate::stat) fn has_dates(text: &str) -> bool {
    dates(text).next().is_some()
}

/// Returns the first two numbers of each date with slashes.
fn dates(text: &str) -> impl Iterator<Item = (u8, u8)> {
    let words = text.split(|c: char| c.is_whitespace() || c == '"');
    words.filter_map(|word| {
        let (first, rest) = word.split_once('/')?;
        let (second, _year) = rest.split_once('/')?;
        Some((first.parse().ok()?, second.parse().ok()?))
    })
}

/// Parses a line that is a time as a whole; `None` if it has any other word.
pub(in crate::stat) fn parse(line: &str, order: DayOrder) -> Option<Stamp> {
    // `zzz ***` is what OSWatcher writes before the output of `date`.
    let line = line.trim().trim_start_matches("zzz").trim_matches([' ', '*', '#', '=', '-']);
    if line.len() > 60 || !line.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    if let Some(seconds) = line.parse::<f64>().ok().filter(|seconds| (1e9..1e10).contains(seconds)) {
        return Some(Stamp { ms: (seconds * 1000.0).round() as i64, since: Since::Epoch });
    }

    if !line.contains([':', '时', '時', '시']) {
        return None;
    }

    // Names of zones become offsets; one that is not UTC is not known.
    let is_zone = |word: &&str| word.len() >= 3 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let words: Vec<&str> = line.split_whitespace().collect();
    let zone = words.iter().find(|word| is_zone(word)).copied();
    let is_local = zone.is_some_and(|zone| !matches!(zone, "UTC" | "GMT"));
    let plain: Vec<&str> = words.into_iter().map(|word| if is_zone(&word) { "+0000" } else { word }).collect();
    let plain = plain.join(" ");
    let plain = plain.strip_suffix('Z').map(|time| format!("{time}+0000")).unwrap_or(plain);
    FORMS.into_iter().find_map(|form| match order {
        DayOrder::DayFirst => of_form(&form.replace("%m/%d/", "%d/%m/"), &plain, is_local),
        DayOrder::MonthFirst => of_form(form, &plain, is_local),
    })
}

fn of_form(form: &str, text: &str, is_local: bool) -> Option<Stamp> {
    let parts = strtime::parse(form, text).ok()?;
    let (ms, since) = match (parts.to_timestamp(), parts.to_datetime()) {
        (Ok(timestamp), _) => (timestamp.as_millisecond(), if is_local { Since::LocalEpoch } else { Since::Epoch }),
        (_, Ok(local)) => (local.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond(), Since::LocalEpoch),
        _ => {
            let time = parts.to_time().ok()?;
            let seconds = i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second());
            (seconds * 1000, Since::Midnight)
        }
    };
    Some(Stamp { ms, since })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_MS: i64 = 1_710_438_794_000;

    #[test]
    fn one_moment_in_many_ways() {
        let any = DayOrder::default();
        for (line, order, ms, since) in [
            ("1710438794", any, AT_MS, Since::Epoch),
            ("1710438794.250", any, AT_MS + 250, Since::Epoch),
            ("zzz 1710438794", any, AT_MS, Since::Epoch),
            ("zzz ***Thu Mar 14 17:53:14 UTC 2024", any, AT_MS, Since::Epoch),
            ("zzz ***Thu Mar 14 17:53:14 EDT 2024", any, AT_MS, Since::LocalEpoch),
            ("Thu Mar 14 05:53:14 PM UTC 2024", any, AT_MS, Since::Epoch),
            ("Thu 14 Mar 2024 05:53:14 PM UTC", any, AT_MS, Since::Epoch),
            ("2024-03-14T17:53:14+0000", any, AT_MS, Since::Epoch),
            ("2024-03-14T10:53:14-0700", any, AT_MS, Since::Epoch),
            ("2024-03-14T17:53:14Z", any, AT_MS, Since::Epoch),
            ("2024-03-14 17:53:14", any, AT_MS, Since::LocalEpoch),
            ("03/14/24 17:53:14", any, AT_MS, Since::LocalEpoch),
            ("03/14/2024 05:53:14 PM", any, AT_MS, Since::LocalEpoch),
            ("03/14/2024 05:53:14\u{202f}PM", any, AT_MS, Since::LocalEpoch),
            ("14/03/24 17:53:14", DayOrder::DayFirst, AT_MS, Since::LocalEpoch),
            ("14.03.2024 17:53:14", any, AT_MS, Since::LocalEpoch),
            ("2024年03月14日 17时53分14秒", any, AT_MS, Since::LocalEpoch),
            ("2024年03月14日 17時53分14秒", any, AT_MS, Since::LocalEpoch),
            ("2024년 03월 14일 17시 53분 14초", any, AT_MS, Since::LocalEpoch),
            ("14-03-2024 17:53:14", any, AT_MS, Since::LocalEpoch),
            ("2024-03-14 05:53:14 PM", any, AT_MS, Since::LocalEpoch),
            ("14/03/24 05:53:14  PM IST", DayOrder::DayFirst, AT_MS, Since::LocalEpoch),
            ("14/03/24 05:53:14 PM", DayOrder::DayFirst, AT_MS, Since::LocalEpoch),
            ("2024/03/14 17:53:14", DayOrder::DayFirst, AT_MS, Since::LocalEpoch),
            ("### 2024-03-14 17:53:14 ###", any, AT_MS, Since::LocalEpoch),
            ("Time: 05:53:14 PM", any, 64_394_000, Since::Midnight),
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
            assert_eq!(parse(line, DayOrder::default()), None, "{line}");
        }
    }

    #[test]
    fn a_text_has_one_order_of_days() {
        assert_eq!(DayOrder::of("Linux 5.8 (host) 12/02/2021\n14/02/2021 10:00:00"), Some(DayOrder::DayFirst));
        assert_eq!(DayOrder::of("02/03/21 and 02/14/21"), Some(DayOrder::MonthFirst));
        assert_eq!((DayOrder::of("02/03/21"), has_dates("02/03/21")), (None, true));
        assert!(!has_dates("r/s w/s 1/2 a/b/c"));
    }

    #[test]
    fn differences() {
        let at = |line| parse(line, DayOrder::default()).expect(line);
        assert_eq!(at("1710438795.5").seconds_since(at("1710438794")), Some(1.5));
        assert_eq!(at("Time: 00:00:01").seconds_since(at("Time: 23:59:59")), Some(2.0));
        assert_eq!(at("1710438794").seconds_since(at("1710438794")), None);
        assert_eq!(at("1710438793").seconds_since(at("1710438794")), None);
        assert_eq!(at("Time: 12:00:00").seconds_since(at("1710438794")), None);
    }
}
