//! One table of the document.

use std::ops::Range;

use sluicegate_sources::nearest;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{Fault, Report, Seen, Value};

/// A table, or the lack of one, which reads as all defaults.
pub(in super::super) struct Section<'a> {
    report: &'a Report<'a>,
    path: String,
    /// The header, or the place where it would be.
    span: Range<usize>,
    table: Option<&'a DeTable<'a>>,
    /// The keys that were asked for so far.
    known: Vec<&'static str>,
    /// Those of them that were found wrong.
    wrong: Vec<&'static str>,
    /// Those that are no settings, of which that was said already.
    misnamed: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(super) fn new(
        report: &'a Report<'a>,
        path: String,
        span: Range<usize>,
        table: Option<&'a DeTable<'a>>,
    ) -> Self {
        let (known, wrong, misnamed) = (Vec::new(), Vec::new(), Vec::new());
        Self { report, path, span, table, known, wrong, misnamed }
    }

    /// The value of a key. What `parse` gives up on is a fault already, and reads as the default.
    pub(in super::super) fn read<T>(
        &mut self,
        name: &'static str,
        default: T,
        parse: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> T {
        self.optional(name, parse).unwrap_or(default)
    }

    /// The value of a key, if it is there and right.
    pub(in super::super) fn optional<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(name)?;
        let parsed = parse(&value);
        if parsed.is_none() {
            self.wrong.push(name);
        }
        parsed
    }

    /// The value of a key that must be there.
    pub(in super::super) fn required<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Option<T> {
        if self.table.is_some_and(|table| !table.contains_key(name)) {
            self.known.push(name);
            self.fault(name, "is missing", None);
            return None;
        }
        self.optional(name, parse)
    }

    /// The table under a key.
    pub(in super::super) fn table<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Section<'a>) -> T,
    ) -> T {
        let (report, path, header) = (self.report, self.path_of(name), self.span.clone());
        let inner = self.value(name).and_then(|value| value.table());
        let (span, table) = inner.map_or((header, None), |(span, table)| (span, Some(table)));
        let mut section = Section::new(report, path, span, table);
        let read = read(&mut section);
        section.close();
        read
    }

    /// The tables under a key, each written as `[[key]]`; those that `read` gives up on are left out.
    pub(in super::super) fn tables<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&mut Section<'a>) -> Option<T>,
    ) -> Vec<T> {
        let Some(value) = self.value(name) else { return Vec::new() };
        let Some(values) = value.tables() else { return Vec::new() };
        let mut found = Vec::with_capacity(values.len());
        for (path, span, table) in values {
            let mut section = Section::new(self.report, path, span, Some(table));
            found.extend(read(&mut section));
            section.close();
        }
        found
    }

    /// Every key and value, for tables whose keys are the user's own.
    pub(in super::super) fn entries<T>(
        &mut self,
        mut read: impl FnMut(&str, &Value<'a>) -> Option<T>,
    ) -> Vec<T> {
        let table = self.table.take();
        let entries = table.into_iter().flat_map(|table| table.iter());
        let read = entries.filter_map(|(key, value)| {
            let path = format!("{}.{}", self.path, shown(key.get_ref()));
            read(key.get_ref(), &Value::new(self.report, path, value))
        });
        read.collect()
    }

    /// A key that is not a setting, and is often written for others: says which.
    pub(in super::super) fn misnamed(&mut self, name: &'static str, help: &str) {
        if let Some((key, value)) = self.table.and_then(|table| table.get_key_value(name)) {
            self.misnamed.push(name);
            self.not_a_setting(key, value, help.to_owned());
        }
    }

    /// Whether the section itself is there.
    pub(in super::super) fn is_there(&self) -> bool {
        self.table.is_some()
    }

    /// Whether the key is there.
    pub(in super::super) fn has(&self, name: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(name))
    }

    /// Whether nothing was found wrong with the key's own value.
    pub(in super::super) fn sound(&self, name: &str) -> bool {
        !self.wrong.contains(&name)
    }

    /// A fault of a key in relation to others. Without the key it stands at the section's header.
    pub(in super::super) fn fault(&self, name: &str, message: &str, help: Option<String>) {
        let value = self.table.and_then(|table| table.get(name));
        let span = value.map_or(self.span.clone(), Spanned::span);
        let (key, message) = (self.path_of(name), message.to_owned());
        self.report.fault(Fault { key, span, message, help });
    }

    /// A fault of the section as a whole.
    pub(in super::super) fn fault_here(&self, message: &str) {
        let (key, span, message) = (self.path.clone(), self.span.clone(), message.to_owned());
        self.report.fault(Fault { key, span, message, help: None });
    }

    /// A fault if the same name was seen before: the message names both places.
    pub(in super::super) fn unique(&self, name: &'static str, value: &str, seen: &mut Seen) {
        let span = self.table.and_then(|table| table.get(name)).map(Spanned::span);
        let span = span.unwrap_or(self.span.clone());
        if let Some((other, first)) = seen.get(value) {
            let (line, _) = self.report.source.place(first.start);
            self.fault(name, &format!("is the same as {other} in line {line}"), None);
        } else {
            seen.insert(value.to_owned(), (self.path_of(name), span));
        }
    }

    /// Finds the keys that nobody asked for.
    pub(super) fn close(self) {
        for (key, value) in self.table.into_iter().flatten() {
            let name: &str = key.get_ref();
            if self.known.contains(&name) || self.misnamed.contains(&name) {
                continue;
            }
            let help = match nearest(name, self.known.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            self.not_a_setting(key, value, help);
        }
    }

    fn not_a_setting(
        &self,
        key: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
        help: String,
    ) {
        // A secret under a misspelt name is still a secret.
        self.report.mask_texts(value);
        let message = "is not a setting".to_owned();
        let path = self.path_of(&shown(key.get_ref()));
        self.report.fault(Fault { key: path, span: key.span(), message, help: Some(help) });
    }

    fn value(&mut self, name: &'static str) -> Option<Value<'a>> {
        self.known.push(name);
        let value: &'a Spanned<DeValue<'a>> = self.table?.get(name)?;
        Some(Value::new(self.report, self.path_of(name), value))
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// A key as it may be shown: quoted if it could not stand bare.
fn shown(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) { key.to_owned() } else { format!("{key:?}") }
}
