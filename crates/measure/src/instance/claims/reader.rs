//! Reads files of claims, see `docs/formats.md`.
//!
//! **Why.** One reader of an article writes its claims down once, and then all others can check them.
//!
//! **How.** A map of `source`, `date`, `machines` and `claims`. The machines and figures of each claim are looked up
//! here, so that a figure that a machine does not have is an error with its line.
//!
//! **Limits.** The first error ends the reading. Cards are built in, or files whose paths start at the claims' file.
//!
//! **Example.** See [`super`].

use std::path::Path;

use plimsoll_figures::units::quoted;
use plimsoll_files::ConfigError;
use plimsoll_files::error::{Code, Source};
use plimsoll_files::fields::{Field, Fields, Schema};
use plimsoll_files::yaml;

use super::quantity::Quantity;
use super::{Bound, Claim, Factor, Kind, Ledger, Machine, PRICE};
use crate::instance::{Card, figures, published};

const FILE: Schema<'_> =
    Schema { what: "a file of claims", known: &["source", "date", "machines", "claims"], refused: &[] };
const MACHINE: Schema<'_> = Schema { what: "a machine", known: &["card", PRICE], refused: &[] };
const CLAIM: Schema<'_> = Schema {
    what: "a claim",
    known: &["claim", "kind", "figure", "of", "against", "factors", "divisors", "bound", "stated"],
    refused: &[],
};

/// Finds the card that a file names.
pub type FindCard<'f> = dyn Fn(&str) -> Result<Card, String> + 'f;

/// Reads claims from a text; `find` looks up the cards that it names.
///
/// # Errors
/// With line and key: the text is no file of claims; a machine has no card; a claim is about a machine that is not in
/// the list, or a figure that the machine does not have; a number has an unknown unit or one that does not fit.
pub fn parse(source_name: &str, text: &str, find: &FindCard<'_>) -> Result<Ledger, ConfigError> {
    read(&Source::new(source_name, text), find)
}

/// Reads a file of claims. The paths of its cards start at its directory.
///
/// # Errors
/// As [`parse`], or the file cannot be read.
pub fn parse_from_file(path: &Path) -> Result<Ledger, ConfigError> {
    let beside = path.parent().unwrap_or(Path::new("")).to_owned();
    read(&yaml::read_file(path)?, &|name: &str| {
        if name.ends_with(".json") {
            return Card::read(&beside.join(name)).map_err(|error| error.to_string());
        }
        find_published(name)
    })
}

/// Returns the published card called `name`.
///
/// # Errors
/// No card has this name; the message has the closest name or all of them.
pub fn find_published(name: &str) -> Result<Card, String> {
    published::find(name).ok_or_else(|| {
        let names = published::names();
        match plimsoll_files::closest_name(name, &names) {
            Some(meant) => format!("no card is called {}: did you mean `{meant}`?", quoted(name)),
            None => format!(
                "no card is called {}: name a file that ends in .json, or one of {}",
                quoted(name),
                names.join(", ")
            ),
        }
    })
}

fn read(source: &Source, find: &FindCard<'_>) -> Result<Ledger, ConfigError> {
    let node = yaml::parse(source)?;
    let root = Field::root(source, &node, "write `source`, `date`, `machines` and `claims`; see docs/formats.md")?;
    let fields = Fields::read(&root, &FILE)?;
    let machines = fields.required("machines", "list the machines: `- {card: i3en.24xlarge}`")?.list()?;
    let machines = machines.iter().try_fold(Vec::new(), |mut read: Vec<Machine>, field| {
        let machine = machine(field, find)?;
        if read.iter().any(|other| other.card.name == machine.card.name) {
            let message = format!("the machine {} stands here twice", quoted(&machine.card.name));
            return Err(field.error(Code::DuplicateName, message).with_help("remove one of the two"));
        }
        let currency = |machine: &Machine| machine.price_per_core_year.as_ref().map(|price| price.unit.clone());
        let known = read.iter().find_map(currency);
        if let (Some(known), Some(other)) = (known, currency(&machine))
            && known != other
        {
            let message = format!("a price in {}, where the ones above are in {}", quoted(&other), quoted(&known));
            return Err(field.error(Code::InvalidValue, message).with_help("state all prices in one currency"));
        }
        read.push(machine);
        Ok(read)
    })?;

    let list = fields.required("claims", "list the claims; see docs/formats.md")?;
    let claims: Vec<Claim> =
        list.list()?.iter().map(|field| claim(source, field, &machines)).collect::<Result<_, _>>()?;
    if claims.is_empty() {
        return Err(list.error(Code::Empty, "there is no claim").with_help("write at least one under `claims`"));
    }
    Ok(Ledger {
        name: source.name().to_owned(),
        source: fields.required("source", "say who claims it")?.string()?,
        date: fields.required("date", "say when it was claimed: 2019-05")?.string()?,
        machines,
        claims,
    })
}

fn machine(field: &Field<'_>, find: &FindCard<'_>) -> Result<Machine, ConfigError> {
    let fields = Fields::read(field, &MACHINE)?;
    let name = fields.required("card", "name a card: a file, or a published one such as i3en.24xlarge")?;
    let card = find(name.text()?).map_err(|why| {
        name.error(Code::UnknownReference, why).with_help("a card is written by `plimsoll instance card -o FILE`")
    })?;
    let price_per_core_year = fields.optional(PRICE, |field| {
        let price = quantity(field)?;
        if price.value > 0.0 {
            return Ok(price);
        }
        Err(field.error(Code::OutOfRange, "a price is above 0").with_help("remove the key if there is no price"))
    })?;
    Ok(Machine { card, price_per_core_year })
}

fn quantity(field: &Field<'_>) -> Result<Quantity, ConfigError> {
    Quantity::parse(field.text()?)
        .map_err(|why| field.error(Code::InvalidValue, why).with_help("write a number and its unit, such as 1.5 GB/s"))
}

fn claim(source: &Source, field: &Field<'_>, machines: &[Machine]) -> Result<Claim, ConfigError> {
    let fields = Fields::read(field, &CLAIM)?;
    let kind = fields.required("kind", "write percent, value or product")?;
    let reader = Reader { fields: &fields, machines };
    let kind = match kind.text()? {
        "percent" => reader.percent()?,
        "value" => reader.value()?,
        "product" => reader.product()?,
        _ => return Err(kind.not_one_of("a kind of claim", &["percent", "value", "product"])),
    };

    let stated_field = fields.required("stated", "write what is claimed, with its unit: 36 %")?;
    let stated = quantity(&stated_field)?;
    if matches!(kind, Kind::Percent { .. }) != (stated.unit == "%") && !is_percentage(&kind) {
        let help = "kind `percent` states per cent (36 %), the others a number with the unit of what is computed";
        return Err(stated_field.error(Code::InvalidValue, "the unit does not fit the kind").with_help(help));
    }

    let bounds = [("about", Bound::About), ("above", Bound::Above), ("at_least", Bound::AtLeast)];
    let bound = fields.or("bound", Bound::About, |field| field.one_of("a bound", &bounds))?;
    let text = fields.required("claim", "write the claim in words")?.string()?;
    let before = source.text().get(..fields.span.start).unwrap_or("");
    Ok(Claim { text, line: before.matches('\n').count() + 1, kind, stated, bound })
}

/// Returns whether a claim is a figure that is itself in per cent.
fn is_percentage(kind: &Kind) -> bool {
    let in_percent = |key: &str| figures::kind(key).is_some_and(|kind| kind.unit == figures::Unit::Percent);
    matches!(kind, Kind::Value { figure, .. } if in_percent(figure))
}

/// A claim that is being read.
struct Reader<'r> {
    fields: &'r Fields<'r>,
    machines: &'r [Machine],
}

impl Reader<'_> {
    fn percent(&self) -> Result<Kind, ConfigError> {
        self.refuse(&["factors", "divisors"], "percent")?;
        let (of, against) = (self.machine("of")?, self.machine("against")?);
        let figure = self.figure(&[of, against])?;
        Ok(Kind::Percent { figure, of, against })
    }

    fn value(&self) -> Result<Kind, ConfigError> {
        self.refuse(&["against", "factors", "divisors"], "value")?;
        let of = self.machine("of")?;
        Ok(Kind::Value { figure: self.figure(&[of])?, of })
    }

    fn product(&self) -> Result<Kind, ConfigError> {
        self.refuse(&["figure", "against"], "product")?;
        let of = self.fields.optional("of", |_| self.machine("of"))?;
        let factors = self.fields.required("factors", "list what is multiplied: [5, 90 G, 1 kB]")?;
        let factors = self.factors(&factors, of)?;
        let divisors = self.fields.or("divisors", Vec::new(), |field| self.factors(field, of))?;
        Ok(Kind::Product { of, factors, divisors })
    }

    fn refuse(&self, keys: &[&str], kind: &str) -> Result<(), ConfigError> {
        let Some((key, field)) = keys.iter().find_map(|key| Some((key, self.fields.get(key)?))) else { return Ok(()) };
        let message = format!("a claim of kind `{kind}` has no `{key}`");
        Err(field.error(Code::UnknownKey, message).with_help("remove the key, or choose another kind"))
    }

    /// Returns the place in the list of the machine that `key` names.
    fn machine(&self, key: &str) -> Result<usize, ConfigError> {
        let field = self.fields.required(key, "name one of the machines of this file")?;
        let name = field.text()?;
        let names: Vec<&str> = self.machines.iter().map(|machine| machine.card.name.as_str()).collect();
        names
            .iter()
            .position(|other| other.eq_ignore_ascii_case(name))
            .ok_or_else(|| field.unknown_name("machine", &names))
    }

    /// Reads the figure of a claim, and checks that all of `machines` have it.
    fn figure(&self, machines: &[usize]) -> Result<String, ConfigError> {
        let field = self.fields.required("figure", "name a figure, such as disk.read_iops")?;
        let key = field.text()?.to_owned();
        machines.iter().try_for_each(|at| self.check_figure(&field, &key, *at))?;
        Ok(key)
    }

    fn check_figure(&self, field: &Field<'_>, key: &str, at: usize) -> Result<(), ConfigError> {
        let Some(machine) = self.machines.get(at) else { return Ok(()) };
        match machine.value(key) {
            Some(value) if value > 0.0 => Ok(()),
            Some(_) => {
                let message = format!("the figure {} of {} is 0", quoted(key), machine.card.name);
                Err(field.error(Code::OutOfRange, message).with_help("nothing can be computed from 0"))
            }
            None if key != PRICE && figures::kind(key).is_none() => {
                let help = match figures::closest(key) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "the keys are those of a card: docs/formats.md".to_owned(),
                };
                let message = format!("there is no figure called {}", quoted(key));
                Err(field.error(Code::UnknownReference, message).with_help(help))
            }
            None => {
                let message = format!("{} has no figure {}", machine.card.name, quoted(key));
                let help = "add it to the card, or the price to the machine";
                Err(field.error(Code::UnknownReference, message).with_help(help))
            }
        }
    }

    fn factors(&self, field: &Field<'_>, of: Option<usize>) -> Result<Vec<Factor>, ConfigError> {
        let factor = |field: &Field<'_>| {
            let text = field.text()?;
            if text == PRICE || figures::kind(text).is_some() {
                let at = of.ok_or_else(|| self.fields.missing("of", "name the machine whose figures are meant"))?;
                self.check_figure(field, text, at)?;
                return Ok(Factor::Figure(text.to_owned()));
            }
            let number = quantity(field)?;
            if number.value > 0.0 {
                return Ok(Factor::Number(number));
            }
            Err(field.error(Code::OutOfRange, "a factor is above 0").with_help("write what is multiplied"))
        };
        field.list()?.iter().map(factor).collect()
    }
}
