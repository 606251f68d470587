//! Reads files of claims, see `docs/formats.md`.
//!
//! **Why.** One reader of an article writes its claims down once, and then all others can check them.
//!
//! **How.** A map of `source`, `date`, `machines` and `claims`. The machines and figures of each claim are looked up
//! here, so that a figure that a machine does not have is an error with its line. A slip is a claim of which only what
//! differs is written: [`Reader`] takes each key from the slip, or else from the claim.
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
use super::{Bound, Claim, Factor, Kind, Ledger, Machine, PRICE, SLIPS, Slip};
use crate::instance::{Card, figures, published};

const FILE: Schema<'_> =
    Schema { what: "a file of claims", known: &["source", "date", "machines", "claims"], refused: &[] };
const MACHINE: Schema<'_> = Schema { what: "a machine", known: &["card", PRICE], refused: &[] };
const CLAIM: Schema<'_> = Schema {
    what: "a claim",
    known: &["claim", "kind", "figure", "of", "against", "factors", "divisors", "bound", "stated", "slip"],
    refused: &[],
};
const SLIP: Schema<'_> = Schema {
    what: "a slip",
    known: &["name", "why", "kind", "figure", "of", "against", "factors", "divisors", "bound", "stated"],
    refused: &[],
};

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
    let mut machines: Vec<Machine> = Vec::new();
    for field in fields.required("machines", "list the machines: `- {card: i3en.24xlarge}`")?.list()? {
        machines.push(machine(&field, &machines, find)?);
    }

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

/// Reads a machine that stands below `others`.
fn machine(field: &Field<'_>, others: &[Machine], find: &FindCard<'_>) -> Result<Machine, ConfigError> {
    let fields = Fields::read(field, &MACHINE)?;
    let name = fields.required("card", "name a card: a file, or a published one such as i3en.24xlarge")?;
    let card = find(name.text()?).map_err(|why| {
        name.error(Code::UnknownReference, why).with_help("a card is written by `plimsoll instance card -o FILE`")
    })?;
    let price_per_core_year =
        fields.optional(PRICE, |field| above_0(field, "a price is above 0", "remove the key if there is no price"))?;
    if others.iter().any(|other| other.card.name == card.name) {
        let message = format!("the machine {} stands here twice", quoted(&card.name));
        return Err(field.error(Code::DuplicateName, message).with_help("remove one of the two"));
    }

    let known = others.iter().find_map(|other| other.price_per_core_year.as_ref());
    if let (Some(known), Some(price)) = (known, &price_per_core_year)
        && known.unit != price.unit
    {
        let message =
            format!("a price in {}, where the ones above are in {}", quoted(&price.unit), quoted(&known.unit));
        return Err(field.error(Code::InvalidValue, message).with_help("state all prices in one currency"));
    }
    Ok(Machine { card, price_per_core_year })
}

fn quantity(field: &Field<'_>) -> Result<Quantity, ConfigError> {
    Quantity::parse(field.text()?)
        .map_err(|why| field.error(Code::InvalidValue, why).with_help("write a number and its unit, such as 1.5 GB/s"))
}

fn above_0(field: &Field<'_>, message: &str, help: &str) -> Result<Quantity, ConfigError> {
    let number = quantity(field)?;
    if number.value > 0.0 { Ok(number) } else { Err(field.error(Code::OutOfRange, message).with_help(help)) }
}

fn claim(source: &Source, field: &Field<'_>, machines: &[Machine]) -> Result<Claim, ConfigError> {
    let fields = Fields::read(field, &CLAIM)?;
    let text = fields.required("claim", "write the claim in words")?.string()?;
    let line = source.text().get(..fields.span.start).unwrap_or("").matches('\n').count() + 1;
    let read = |slip: Option<&Fields<'_>>| Reader { fields: &fields, slip, machines }.claim(text.clone(), line);

    let slip = |field: &Field<'_>| {
        let slip = Fields::read(field, &SLIP)?;
        let name = slip.required("name", "name the kind of error, such as swapped-base")?;
        let (name, verdict) = name.one_of("a slip", &SLIPS.map(|slip| (slip.0, slip)))?;
        let why = slip.required("why", "write the cause in words")?.string()?;
        Ok(Box::new(Slip { name, verdict, why, instead: read(Some(&slip))? }))
    };
    Ok(Claim { slip: fields.optional("slip", slip)?, ..read(None)? })
}

fn is_percentage(key: &str) -> bool {
    figures::kind(key).is_some_and(|kind| kind.unit == figures::Unit::Percent)
}

/// A claim that is being read, or the claim that a slip puts in its place.
struct Reader<'r> {
    fields: &'r Fields<'r>,
    slip: Option<&'r Fields<'r>>,
    machines: &'r [Machine],
}

impl<'r> Reader<'r> {
    fn get(&self, key: &str) -> Option<Field<'r>> {
        self.slip.and_then(|slip| slip.get(key)).or_else(|| self.fields.get(key))
    }

    fn required(&self, key: &str, help: &str) -> Result<Field<'r>, ConfigError> {
        self.get(key).ok_or_else(|| self.fields.missing(key, help))
    }

    fn claim(&self, text: String, line: usize) -> Result<Claim, ConfigError> {
        let kinds =
            [("percent", Kind::Percent), ("share", Kind::Share), ("value", Kind::Value), ("product", Kind::Product)];
        let kind_field = self.required("kind", "write percent, share, value or product")?;
        let kind = kind_field.one_of("a kind of claim", &kinds)?;
        let refused: &[&str] = match kind {
            Kind::Percent | Kind::Share => &["factors", "divisors"],
            Kind::Value => &["against", "factors", "divisors"],
            Kind::Product => &["figure", "against"],
        };
        if let Some((key, field)) = refused.iter().find_map(|key| Some((key, self.get(key)?))) {
            let message = format!("a claim of kind `{}` has no `{key}`", kind_field.text()?);
            return Err(field.error(Code::UnknownKey, message).with_help("remove the key, or choose another kind"));
        }

        let (factors, divisors) = match kind {
            Kind::Percent | Kind::Share => {
                let (of, against) = (self.machine("of")?, self.machine("against")?);
                (vec![self.figure(of)?], vec![self.figure(against)?])
            }
            Kind::Value => (vec![self.figure(self.machine("of")?)?], Vec::new()),
            Kind::Product => {
                let of = self.get("of").map(|_| self.machine("of")).transpose()?;
                let factors = self.required("factors", "list what is multiplied: [5, 90 G, 1 kB]")?;
                let divisors = self.get("divisors").map(|field| self.factors(&field, of)).transpose()?;
                (self.factors(&factors, of)?, divisors.unwrap_or_default())
            }
        };

        let stated_field = self.required("stated", "write what is claimed, with its unit: 36 %")?;
        let stated = quantity(&stated_field)?;
        // A figure that is itself in per cent may be stated in per cent.
        let in_percent = |factor: &Factor| matches!(factor, Factor::Figure { key, .. } if is_percentage(key));
        let is_percentage = kind == Kind::Value && factors.iter().any(in_percent);
        if matches!(kind, Kind::Percent | Kind::Share) != (stated.unit == "%") && !is_percentage {
            let help = "kinds `percent` and `share` state per cent (36 %), the others a number with the unit of what \
                        is computed";
            return Err(stated_field.error(Code::InvalidValue, "the unit does not fit the kind").with_help(help));
        }

        let bounds = [("about", Bound::About), ("above", Bound::Above), ("at_least", Bound::AtLeast)];
        let bound = self.get("bound").map(|field| field.one_of("a bound", &bounds)).transpose()?;
        let bound = bound.unwrap_or(Bound::About);
        Ok(Claim { text, line, kind, factors, divisors, stated, bound, slip: None })
    }

    /// Returns the place in the list of the machine that `key` names.
    fn machine(&self, key: &str) -> Result<usize, ConfigError> {
        let field = self.required(key, "name one of the machines of this file")?;
        let name = field.text()?;
        let names: Vec<&str> = self.machines.iter().map(|machine| machine.card.name.as_str()).collect();
        let found = names.iter().position(|other| other.eq_ignore_ascii_case(name));
        found.ok_or_else(|| field.unknown_name("machine", &names))
    }

    /// Reads the figure of a claim about the machine at `of`.
    fn figure(&self, of: usize) -> Result<Factor, ConfigError> {
        let field = self.required("figure", "name a figure, such as disk.read_iops")?;
        self.figure_of(&field, field.text()?, of)
    }

    /// Returns the figure `key` of the machine at `of`, which must have it.
    fn figure_of(&self, field: &Field<'_>, key: &str, of: usize) -> Result<Factor, ConfigError> {
        let machine = self.machines.get(of);
        let name = machine.map_or("", |machine| machine.card.name.as_str());
        match machine.and_then(|machine| machine.value(key)) {
            Some(value) if value > 0.0 => Ok(Factor::Figure { of, key: key.to_owned() }),
            Some(_) => {
                let message = format!("the figure {} of {name} is 0", quoted(key));
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
                let message = format!("{name} has no figure {}", quoted(key));
                let help = "add it to the card, or the price to the machine";
                Err(field.error(Code::UnknownReference, message).with_help(help))
            }
        }
    }

    fn factors(&self, field: &Field<'_>, of: Option<usize>) -> Result<Vec<Factor>, ConfigError> {
        let factor = |field: &Field<'_>| {
            let text = field.text()?;
            if text == PRICE || figures::kind(text).is_some() {
                let of = of.ok_or_else(|| self.fields.missing("of", "name the machine whose figures are meant"))?;
                return self.figure_of(field, text, of);
            }
            above_0(field, "a factor is above 0", "write what is multiplied").map(Factor::Number)
        };
        field.list()?.iter().map(factor).collect()
    }
}
