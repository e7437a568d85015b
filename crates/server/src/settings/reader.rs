//! A typed walk over a TOML document that goes on after a mistake.
//!
//! 1. Every fault is kept, with its key and where it stands; a value that is wrong reads as its
//!    default, so that the walk goes on. The settings are given out only if there is no fault.
//! 2. A section that was asked for all its keys knows them: what else stands in it is a fault.
//! 3. What may be secret is noted while it is read, and masked wherever its line is shown.

mod section;
mod value;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Problems};
use super::source::Source;
use super::substitute::Env;

pub(super) use section::Section;
pub(super) use value::{Value, name_invalid, quoted};

/// More faults than this say nothing new.
const MOST_FAULTS: usize = 1_000;

/// What is known of the document, and what was found wrong in it.
pub(super) struct Report<'a> {
    source: Source<'a>,
    env: Env<'a>,
    faults: RefCell<Vec<Fault>>,
    faulted: Cell<usize>,
    masks: RefCell<Vec<Range<usize>>>,
}

/// One thing that is wrong.
pub(super) struct Fault {
    pub(super) key: String,
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// Where each name of a kind was first used.
pub(super) type Seen = HashMap<String, (String, Range<usize>)>;

/// Reads a document with `read`, or says all that is wrong with it.
pub(super) fn document<T>(
    name: &str,
    text: &str,
    env: Env<'_>,
    read: impl FnOnce(&mut Section<'_>) -> T,
) -> Result<T, Problems> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let report = Report {
        source: Source::new(text),
        env,
        faults: RefCell::default(),
        faulted: Cell::default(),
        masks: RefCell::default(),
    };
    if !errors.is_empty() {
        for error in errors {
            report.unreadable(&error);
        }
        return Err(report.problems(name));
    }
    let mut top = Section::new(&report, String::new(), document.span(), Some(document.get_ref()));
    let value = read(&mut top);
    top.close();
    if report.faulted.get() == 0 { Ok(value) } else { Err(report.problems(name)) }
}

impl Report<'_> {
    fn fault(&self, fault: Fault) {
        self.faulted.set(self.faulted.get() + 1);
        let mut faults = self.faults.borrow_mut();
        if faults.len() < MOST_FAULTS {
            faults.push(fault);
        }
    }

    /// A document that is not TOML. Its values are not known, so suspect lines are masked.
    fn unreadable(&self, error: &toml::de::Error) {
        let end = self.source.text().len();
        let span = error.span().unwrap_or(end..end);
        self.masks.borrow_mut().extend(self.source.suspicion(span.start));
        let twice = error.message() == "duplicate key";
        let key = if twice { self.source.slice(&span).to_owned() } else { String::new() };
        let message = if twice { "is there twice" } else { error.message() };
        let message = message.to_owned();
        self.fault(Fault { key, span, message, help: None });
    }

    /// Hides a span, in whatever line is shown.
    fn mask(&self, span: Range<usize>) {
        self.masks.borrow_mut().push(span);
    }

    /// Hides every text below a value.
    fn mask_texts(&self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::String(_) => self.mask(value.span()),
            DeValue::Array(values) => values.iter().for_each(|value| self.mask_texts(value)),
            DeValue::Table(table) => table.values().for_each(|value| self.mask_texts(value)),
            _ => {}
        }
    }

    fn problems(self, name: &str) -> Problems {
        let masks = merged(self.masks.into_inner());
        let mut faults = self.faults.into_inner();
        faults.sort_by_key(|fault| fault.span.start);
        let unsaid = self.faulted.get() - faults.len();
        let mut list: Vec<Problem> = faults
            .into_iter()
            .map(|Fault { key, span, message, help }| {
                let (line, column) = self.source.place(span.start);
                let excerpt = Some(self.source.excerpt(&span, &masks));
                Problem { line, column, key, message, help, excerpt }
            })
            .collect();
        if unsaid > 0 {
            list.push(Problem::whole(format!("and {unsaid} more")));
        }
        Problems::new(name, list)
    }
}

/// The same spans in order, those that touch made one.
fn merged(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_by_key(|span| span.start);
    spans.dedup_by(|later, earlier| {
        let touches = later.start <= earlier.end;
        if touches {
            earlier.end = earlier.end.max(later.end);
        }
        touches
    });
    spans
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn masks_inside_each_other_become_one() {
        assert_eq!(merged(vec![10..20, 0..100, 150..160, 100..110]), [0..110, 150..160]);
        assert!(merged(vec![]).is_empty());
    }
}
