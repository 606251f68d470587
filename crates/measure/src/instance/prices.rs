//! Reads files with the prices of machines.
//!
//! **Why.** Prices change, and depend on the region and on the commitment. No price is therefore part of the program:
//! prices come from a file that states their date, region, currency and source.
//!
//! **How.** YAML, see "Price files" in docs/formats.md. Prices are stored for a year of 365 days (8760 hours). Several
//! files with the same currency are read as one list.
//!
//! **Limits.** Whether prices include discounts, taxes, traffic and support is up to the file. No file is checked
//! against a provider; prices that are two years old, or of a future date, get a warning.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::prices;
//! let text = "
//! date: 2019-05-08
//! currency: USD
//! region: us-east-1
//! source: a price list
//! commitment: 1 year
//! instances:
//!   - {name: i3.16xlarge, per_core_year: 880.50, cores: 32}
//! ";
//! let prices = prices::parse("prices.yaml", text)?;
//! assert_eq!(prices.instance("i3.16xlarge").map(|price| price.per_year), Some(28_176.0));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

use std::path::Path;

use jiff::Unit;
use jiff::civil::Date;
use plimsoll_figures::units::quoted;
use plimsoll_files::error::Source;
use plimsoll_files::fields::{Field, Fields, Schema};
use plimsoll_files::{Code, ConfigError, yaml};

/// Hours of a year: clouds bill 365 days.
pub const HOURS_PER_YEAR: f64 = 8760.0;

/// The highest price. Nothing costs more in any currency, and sums of such prices are still finite.
const PRICE_MAX: f64 = 1e12;

/// The longest name of an instance or a currency, in characters.
const NAME_MAX_CHARS: usize = 64;

/// Age in whole years from which on prices get a warning as old.
const OLD_YEARS: i16 = 2;

const FILE: Schema<'static> = Schema {
    what: "a price file",
    known: &["date", "currency", "region", "source", "commitment", "instances"],
    refused: &[],
};

/// Ways to state the price of an instance.
const PER: [&str; 3] = ["per_hour", "per_year", "per_core_year"];

const INSTANCE: Schema<'static> = Schema {
    what: "the price of an instance",
    known: &["name", PER[0], PER[1], PER[2], "cores", "commitment", "currency", "date", "source"],
    refused: &[],
};

#[derive(Clone, Debug, PartialEq)]
pub struct InstancePrice {
    /// The machine's name, as on its card.
    pub name: String,
    /// Price of a year, in the currency of the list; above 0.
    pub per_year: f64,
    /// The commitment that this price needs: `on demand`, `1 year`.
    pub commitment: String,
    /// The year, month or day of the price.
    pub date: String,
}

/// Prices of one or more files, in one currency.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriceList {
    /// The currency, as the files name it: `USD`.
    pub currency: String,
    pub regions: Vec<String>,
    pub instances: Vec<InstancePrice>,
}

impl PriceList {
    /// Returns the price of the machine called `name`, in upper or lower case.
    pub fn instance(&self, name: &str) -> Option<&InstancePrice> {
        self.instances.iter().find(|price| price.name.eq_ignore_ascii_case(name))
    }

    /// Returns reasons to doubt the prices: they are old, of a future date, or of several regions.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings_on(jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date())
    }

    fn warnings_on(&self, today: Date) -> Vec<String> {
        let mut warnings: Vec<String> = Vec::new();

        for InstancePrice { date, .. } in &self.instances {
            let Some([first, last]) = parse_date(date) else { continue };
            let years = last.until((Unit::Year, today)).map_or(0, |span| span.get_years());
            let warning = if first > today {
                format!("the prices of instances are of {date}, which is yet to come: correct the date")
            } else if years >= OLD_YEARS {
                format!("the prices of instances are of {date}, more than {years} years old: look them up again")
            } else {
                continue;
            };
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }

        if let [first, others @ ..] = self.regions.as_slice()
            && others.iter().any(|region| region != first)
        {
            warnings.push(format!("the prices are of several regions: {}", self.regions.join(", ")));
        }
        warnings
    }

    fn add(&mut self, source: &Source) -> Result<(), ConfigError> {
        let root = yaml::parse(source)?;
        let help = "write `date`, `currency`, `region`, `source`, and `instances` with their prices";
        let fields = Fields::read(&Field::root(source, &root, help)?, &FILE)?;
        let currency = fields.required("currency", "name it once for all prices, as USD")?;
        let common = Common {
            currency: name(&currency)?,
            date: date(&fields.required("date", "say as of when the prices are, as 2026-11-21")?)?,
            commitment: fields.optional("commitment", Field::string)?,
        };
        fields.required("source", "say where the prices come from")?.string()?;
        let region = fields.required("region", "say where the prices hold, as us-east-1")?.string()?;
        let instances = fields.required("instances", help)?;
        if !self.regions.is_empty() && common.currency != self.currency {
            let message = format!("prices in {} beside prices in {}", common.currency, self.currency);
            let help = "give all prices in one currency: convert one of the files";
            return Err(currency.error(Code::InvalidValue, message).with_help(help));
        }
        self.currency.clone_from(&common.currency);
        self.regions.push(region);

        for entry in instances.list()? {
            let price = instance(&entry, &common)?;
            if self.instance(&price.name).is_some() {
                let message = format!("{} has a price already", quoted(&price.name));
                return Err(entry.error(Code::DuplicateName, message).with_help("remove one of the two"));
            }
            self.instances.push(price);
        }
        Ok(())
    }
}

/// Reads prices from a text; `source_name` is for messages.
///
/// # Errors
/// The text is not YAML; a key is unknown or missing; a price is not above 0; a row is in another currency; a date is
/// invalid; a name occurs twice.
pub fn parse(source_name: &str, text: &str) -> Result<PriceList, ConfigError> {
    let mut list = PriceList::default();
    list.add(&Source::new(source_name, text)).map(|()| list)
}

/// Reads price files into one list; returns `None` without files.
///
/// # Errors
/// As [`parse`]; a file cannot be read, differs in currency from the first, or repeats a price of an earlier one.
pub fn read_files<P: AsRef<Path>>(paths: &[P]) -> Result<Option<PriceList>, ConfigError> {
    let mut list = PriceList::default();
    for path in paths {
        list.add(&yaml::read_file(path.as_ref())?)?;
    }
    Ok((!paths.is_empty()).then_some(list))
}

/// The values of a file that hold for each of its prices unless the row has its own.
struct Common {
    currency: String,
    date: String,
    commitment: Option<String>,
}

impl Common {
    /// Checks the currency and the source of a row, and returns the row's date.
    fn date_of_row(&self, fields: &Fields<'_>) -> Result<String, ConfigError> {
        if let Some(field) = fields.get("currency")
            && field.text()? != self.currency
        {
            let message = format!("a price in {} in a file of prices in {}", quoted(field.text()?), self.currency);
            let help = "give all prices in one currency: convert this one and remove the key";
            return Err(field.error(Code::InvalidValue, message).with_help(help));
        }
        fields.optional("source", Field::string)?;
        fields.or("date", self.date.clone(), date)
    }
}

fn instance(entry: &Field<'_>, common: &Common) -> Result<InstancePrice, ConfigError> {
    let fields = Fields::read(entry, &INSTANCE)?;
    let name = name(&fields.required("name", "name the instance as its card does, as i3en.24xlarge")?)?;

    let one_of = "write one of `per_hour`, `per_year`, or `per_core_year` with `cores`";
    let stated: Vec<&str> = PER.into_iter().filter(|key| fields.get(key).is_some()).collect();
    let per_year = match stated.as_slice() {
        [] => return Err(fields.missing("per_hour", one_of)),
        ["per_hour"] => price(&fields, "per_hour")? * HOURS_PER_YEAR,
        ["per_year"] => price(&fields, "per_year")?,
        ["per_core_year"] => {
            let cores = fields.required("cores", "say how many cores the price per core was computed with")?;
            price(&fields, "per_core_year")? * f64::from(cores.count(1..=100_000)?)
        }
        several => {
            let message = format!("`{}` are prices of the same thing", several.join("` and `"));
            return Err(entry.error(Code::InvalidValue, message).with_help(one_of));
        }
    };
    if let Some(cores) = fields.get("cores").filter(|_| stated != ["per_core_year"]) {
        let error = cores.error(Code::Ignored, "`cores` says nothing beside a price of the whole instance");
        return Err(error.with_help("remove it, or write `per_core_year`"));
    }

    let Some(commitment) = fields.optional("commitment", Field::string)?.or_else(|| common.commitment.clone()) else {
        return Err(
            fields.missing("commitment", "say what this price commits to: `on demand`, `1 year`; or once for all")
        );
    };

    Ok(InstancePrice { name, per_year, commitment, date: common.date_of_row(&fields)? })
}

/// Reads a price above 0. A machine without a price has no entry.
fn price(fields: &Fields<'_>, key: &str) -> Result<f64, ConfigError> {
    let field = fields.required(key, "write the price")?;
    let is_price = |number: f64| number > 0.0 && number <= PRICE_MAX;
    field.number(is_price, "above 0 and up to 1e12; remove the entry where there is no price")
}

/// Reads a name of at most 64 printable characters.
fn name(field: &Field<'_>) -> Result<String, ConfigError> {
    let text = field.text()?;
    if text.chars().count() > NAME_MAX_CHARS || text.chars().any(char::is_control) {
        let error = field.error(Code::InvalidValue, "this name is too long, or has control characters");
        return Err(error.with_help(format!("write at most {NAME_MAX_CHARS} characters that can be printed")));
    }
    Ok(text.to_owned())
}

/// Reads a date: a year, a month or a day.
fn date(field: &Field<'_>) -> Result<String, ConfigError> {
    let text = field.text()?;
    if parse_date(text).is_none() {
        let error = field.error(Code::InvalidValue, format!("{} is not a date", quoted(text)));
        return Err(error.with_help("write a day, a month or a year: 2026-11-21, 2026-11 or 2026"));
    }
    Ok(text.to_owned())
}

/// Returns the first and the last day of `2019`, `2019-05` or `2019-05-08`.
fn parse_date(text: &str) -> Option<[Date; 2]> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let day = |text: String| text.parse::<Date>().ok().filter(|_| is_plain);
    match text.len() {
        4 => Some([day(format!("{text}-01-01"))?, day(format!("{text}-12-31"))?]),
        7 => day(format!("{text}-01")).map(|first| [first, first.last_of_month()]),
        10 => day(text.to_owned()).map(|day| [day, day]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "date: 2026-01\ncurrency: USD\nregion: r\nsource: s\ncommitment: on demand\n";

    #[test]
    fn a_price_by_the_hour_the_year_or_the_core_is_one_by_the_year() {
        let text = format!(
            "{HEAD}instances:\n- {{name: a, per_hour: 2}}\n- {{name: b, per_year: 100, commitment: 1 year}}\n- \
             {{name: c, per_core_year: 10.5, cores: 4, date: 2020-12}}\n"
        );
        let prices = parse("p.yaml", &text).unwrap();
        let years: Vec<f64> = prices.instances.iter().map(|price| price.per_year).collect();
        assert_eq!(years, [17_520.0, 100.0, 42.0]);
        assert_eq!(prices.instance("B").unwrap().commitment, "1 year");
        assert_eq!(prices.instance("a").unwrap().commitment, "on demand");
        assert_eq!(prices.warnings_on(Date::constant(2026, 11, 21)).len(), 1, "c alone is old");
        assert_eq!(prices.warnings_on(Date::constant(2028, 1, 31)).len(), 2);
        let told = |today: Date| prices.warnings_on(today).concat().contains("2026-01, which is yet to come");
        assert!(!told(Date::constant(2026, 1, 1)), "the month has begun");
        assert!(told(Date::constant(2025, 12, 31)));
    }

    #[test]
    fn bad_files_are_refused_with_line_and_key() {
        let row = |row: &str| format!("{HEAD}instances:\n- {{{row}}}\n");
        let cases = [
            (HEAD.replace("date: 2026-01\n", "instances: []\n"), 1, "needs `date`"),
            (HEAD.replace("2026-01", "May 2019"), 1, "is not a date"),
            (HEAD.replace("2026-01", "2026-13"), 1, "is not a date"),
            (HEAD.replace("2026-01", "2026-01-01-01"), 1, "is not a date"),
            (HEAD.to_owned(), 1, "needs `instances`"),
            (row("name: a, per_hour: 0"), 7, "write a number above 0"),
            (row("name: a, per_hour: -1"), 7, "write a number above 0"),
            (row("name: a, per_hour: free"), 7, "is not a number"),
            (row("name: a"), 7, "one of `per_hour`, `per_year`"),
            (row("name: a, per_hour: 1, per_year: 2"), 7, "prices of the same thing"),
            (row("name: a, per_core_year: 1"), 7, "needs `cores`"),
            (row("name: a, per_year: 1, cores: 4"), 7, "says nothing beside"),
            (row("name: a, per_our: 1"), 7, "did you mean `per_hour`?"),
            (row("name: a, per_hour: 1, currency: EUR"), 7, "in a file of prices in USD"),
            (row("name: a, per_hour: 1}\n- {name: a, per_hour: 2"), 8, "has a price already"),
            (row("name: a, per_hour: 1").replace("commitment: on demand\n", ""), 6, "needs `commitment`"),
            (row("name: a, per_hour: 1e13"), 7, "up to 1e12"),
            (row(&format!("name: {}, per_hour: 1", "a".repeat(65))), 7, "too long"),
            (row("name: \"a\\x1b[2J\", per_hour: 1"), 7, "control characters"),
            (format!("{HEAD}prices: 1\n"), 6, "has no key"),
        ];
        for (text, line, expected) in cases {
            let error = parse("p.yaml", &text).unwrap_err();
            let shown = error.to_string();
            assert!(shown.contains(expected), "{text}: {shown}");
            assert_eq!(error.line(), Some(line), "{shown}");
        }
    }

    #[test]
    fn files_in_two_currencies_and_names_twice_do_not_add_up() {
        let text = format!("{HEAD}instances:\n- {{name: a, per_hour: 2}}\n");
        let euro = text.replace("USD", "EUR").replace("name: a", "name: b");
        let add = |other: &str| {
            let mut list = parse("p.yaml", &text).unwrap();
            list.add(&Source::new("q.yaml", other)).map(|()| list)
        };
        assert!(add(&euro).unwrap_err().to_string().contains("prices in EUR beside prices in USD"));
        assert!(add(&text).unwrap_err().to_string().contains("\"a\" has a price already"));
        let both = add(&euro.replace("EUR", "USD").replace("region: r", "region: s")).unwrap();
        assert_eq!(both.instances.len(), 2);
        assert!(both.warnings_on(Date::constant(2026, 11, 21)).concat().contains("several regions: r, s"));
    }
}
