//! The one list of exceptions: who needs it, why, and until when.
//!
//! 1. A path is one file or one folder below the list, never the beginning of a name, never all.
//! 2. An exemption with a missing or senseless field exempts nothing and is itself a finding.
//! 3. An expired exemption exempts nothing; its last day is still valid.
//! 4. An exemption for more than a year exempts nothing: somebody looks at each once a year.
//! 5. An exemption that no finding needed is a finding, if the run looked at all of its path.
//! 6. Only the laws can be exempted: never a file that was not found, read or parsed.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::date::Date;
use crate::finding::{Finding, Rule};

const FIELDS: [&str; 5] = ["path", "rule", "reason", "owner", "expiry"];

/// The exemptions of one file.
#[derive(Debug, Default)]
pub struct Exemptions {
    file: PathBuf,
    text: String,
    valid: Vec<Exemption>,
    faults: Vec<Finding>,
}

#[derive(Debug)]
struct Exemption {
    path: PathBuf,
    shown: String,
    rule: Rule,
    expiry: Date,
    expiry_span: Range<usize>,
    owner: String,
    span: Range<usize>,
    used: bool,
}

impl Exemptions {
    /// Reads the text of `file`.
    ///
    /// # Errors
    ///
    /// When the text is not TOML, or `exemption` is not a list of tables.
    pub fn parse(file: &Path, text: &str) -> Result<Self, String> {
        let document = DeTable::parse(text).map_err(|error| error.to_string())?;
        let mut exemptions =
            Self { file: file.to_owned(), text: text.to_owned(), ..Self::default() };
        for (key, value) in document.get_ref() {
            if key.get_ref() != "exemption" {
                let message = format!("`{}` means nothing here", key.get_ref());
                exemptions.fault(Rule::ExemptionIncomplete, key.span(), message);
                continue;
            }
            let DeValue::Array(entries) = value.get_ref() else {
                return Err("`exemption` must be written as `[[exemption]]` tables".to_owned());
            };
            for entry in entries.iter() {
                let DeValue::Table(table) = entry.get_ref() else {
                    return Err("`exemption` must be written as `[[exemption]]` tables".to_owned());
                };
                exemptions.read_entry(table, entry.span());
            }
        }
        Ok(exemptions)
    }

    /// Removes the findings that are exempted, and adds those about the exemptions themselves.
    ///
    /// `checked` are the absolute files and folders the run looked at.
    #[must_use]
    pub fn apply(
        mut self,
        findings: Vec<Finding>,
        checked: &[PathBuf],
        today: Date,
    ) -> Vec<Finding> {
        self.refuse_long(today.a_year_later());
        let mut kept = Vec::new();
        for finding in findings {
            let mut exempted = false;
            for exemption in &mut self.valid {
                if exemption.rule == finding.rule && finding.path.starts_with(&exemption.path) {
                    exemption.used = true;
                    exempted |= today <= exemption.expiry;
                }
            }
            if !exempted {
                kept.push(finding);
            }
        }
        for exemption in std::mem::take(&mut self.valid) {
            let Exemption { shown, rule, expiry, owner, span, .. } = exemption;
            let rule = rule.id();
            if today > expiry {
                let message =
                    format!("the exemption of `{shown}` from {rule} expired on {expiry} ({owner})");
                self.fault(Rule::ExemptionExpired, span, message);
            } else if !exemption.used && checked.iter().any(|root| exemption.path.starts_with(root))
            {
                let message = format!("nothing in `{shown}` needs the exemption from {rule}");
                self.fault(Rule::ExemptionUnused, span, message);
            }
        }
        kept.append(&mut self.faults);
        kept
    }

    /// Takes out what would hold beyond `latest`.
    fn refuse_long(&mut self, latest: Date) {
        let (long, valid): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.valid).into_iter().partition(|one| one.expiry > latest);
        self.valid = valid;
        for Exemption { shown, rule, expiry_span, .. } in long {
            let message = format!(
                "the exemption of `{shown}` from {} is for more than a year: {latest} is the \
                 latest day",
                rule.id()
            );
            self.fault(Rule::ExemptionIncomplete, expiry_span, message);
        }
    }

    fn read_entry(&mut self, table: &DeTable<'_>, span: Range<usize>) {
        let faults_before = self.faults.len();
        for key in table.keys() {
            if !FIELDS.contains(&key.get_ref().as_ref()) {
                let message = format!("`{}` is not a field of an exemption", key.get_ref());
                self.fault(Rule::ExemptionIncomplete, key.span(), message);
            }
        }
        let fields = FIELDS.map(|field| self.field(table, field, &span));
        let [Some(path), Some(rule), Some(_), Some(owner), Some(expiry)] = fields else {
            return;
        };
        let Some(folder) = relative(&path.0) else {
            let message = format!("`{}` leaves the folder of this file", path.0);
            return self.fault(Rule::ExemptionIncomplete, path.1, message);
        };
        if folder.as_os_str().is_empty() {
            let message = format!(
                "`{}` is everything: an exemption covers a file, or a folder below this one",
                path.0
            );
            return self.fault(Rule::ExemptionIncomplete, path.1, message);
        }
        let Some(known) = Rule::exemptible(&rule.0) else {
            let message = format!("`{}` is not a rule that can be exempted", rule.0);
            return self.fault(Rule::ExemptionIncomplete, rule.1, message);
        };
        let Some(date) = Date::parse(&expiry.0) else {
            let message = format!("`{}` is not a day written YYYY-MM-DD", expiry.0);
            return self.fault(Rule::ExemptionIncomplete, expiry.1, message);
        };
        if self.faults.len() == faults_before {
            self.valid.push(Exemption {
                path: self.file.parent().unwrap_or(Path::new("")).join(folder),
                shown: path.0,
                rule: known,
                expiry: date,
                expiry_span: expiry.1,
                owner: owner.0,
                span,
                used: false,
            });
        }
    }

    /// The text of a field and where it stands; a fault when there is none.
    fn field(
        &mut self,
        table: &DeTable<'_>,
        name: &str,
        entry: &Range<usize>,
    ) -> Option<(String, Range<usize>)> {
        let Some(value) = table.get(name) else {
            let message = format!("the exemption has no `{name}`");
            self.fault(Rule::ExemptionIncomplete, entry.clone(), message);
            return None;
        };
        match value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => {
                Some((text.to_string(), value.span()))
            }
            DeValue::String(_) => {
                let message = format!("`{name}` is empty");
                self.fault(Rule::ExemptionIncomplete, value.span(), message);
                None
            }
            _ => {
                let message = format!("`{name}` must be a string in quotes");
                self.fault(Rule::ExemptionIncomplete, value.span(), message);
                None
            }
        }
    }

    fn fault(&mut self, rule: Rule, span: Range<usize>, message: String) {
        let before = self.text.get(..span.start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let source_line = self.text[line_start..].lines().next().unwrap_or_default().to_owned();
        let column = before[line_start..].chars().count() + 1;
        let covered = self.text.get(span).unwrap_or_default().lines().next().unwrap_or_default();
        let help = match rule {
            Rule::ExemptionExpired => "fix the code, or renew the exemption with its owner",
            Rule::ExemptionUnused => "remove the exemption",
            _ => {
                "write path (a file or folder below this one), rule, reason, owner and \
                 expiry = \"YYYY-MM-DD\", at most a year ahead"
            }
        };
        self.faults.push(Finding {
            rule,
            path: self.file.clone(),
            line: before.matches('\n').count() + 1,
            column,
            width: covered.chars().count().max(1),
            message,
            help: help.to_owned(),
            source_line,
        });
    }
}

/// The path without `./` and trailing `/`; nothing if it is absolute or climbs out.
fn relative(path: &str) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => clean.push(name),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}
