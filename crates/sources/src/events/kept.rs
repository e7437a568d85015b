//! What is stored of a shelf, as text: up to where events were touched, and which of those are open.
//!
//! `docs/rules.md#events-6`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sluicegate_dispatch::Reason;

/// The version of the text.
const VERSION: u32 = 1;

/// What is known of an event that is open, beside that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) attempts: u32,
    /// Not before this, in milliseconds since 1970, and why.
    pub(crate) due: Option<(u64, Reason)>,
}

/// Everything up to a position is settled but these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) up_to: u64,
    pub(crate) open: BTreeMap<u64, Note>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Text {
    version: u32,
    up_to: u64,
    /// Each by how far it is from the one before.
    open: Vec<Open>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Open {
    Plain(u64),
    Tried(u64, u32),
    Due(u64, u32, u64, u8),
}

/// A text that this version does not understand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotKept(String);

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stored cursor is not understood: {}", self.0)
    }
}

/// The numbers of reasons: a number is never used for another one.
const REASONS: [Reason; 7] = [
    Reason::Scheduled,
    Reason::Failed,
    Reason::Throttled,
    Reason::BreakerOpen,
    Reason::Cascade,
    Reason::PoolFull,
    Reason::Draining,
];

fn number_of(reason: Reason) -> u8 {
    let number = REASONS.iter().position(|known| *known == reason);
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(1)
}

impl Kept {
    pub(crate) fn to_text(&self) -> String {
        let mut last = 0;
        let open = |(&position, note): (&u64, &Note)| {
            let step = position - last;
            last = position;
            match (note.due, note.attempts) {
                (Some((due, why)), attempts) => Open::Due(step, attempts, due, number_of(why)),
                (None, 0) => Open::Plain(step),
                (None, attempts) => Open::Tried(step, attempts),
            }
        };
        let open = self.open.iter().map(open).collect();
        let text = Text { version: VERSION, up_to: self.up_to, open };
        serde_json::to_string(&text).expect("numbers are JSON")
    }

    pub(crate) fn of_text(text: &str) -> Result<Self, NotKept> {
        let text: Text = serde_json::from_str(text).map_err(|error| NotKept(error.to_string()))?;
        if text.version != VERSION {
            return Err(NotKept(format!("it is of version {}", text.version)));
        }
        let (mut last, mut open) = (0_u64, BTreeMap::new());
        for item in text.open {
            let (step, note) = match item {
                Open::Plain(step) => (step, Note::default()),
                Open::Tried(step, attempts) => (step, Note { attempts, due: None }),
                Open::Due(step, attempts, due, why) => {
                    let why = REASONS.get(usize::from(why)).copied().unwrap_or(Reason::Failed);
                    (step, Note { attempts, due: Some((due, why)) })
                }
            };
            last = last.checked_add(step).filter(|last| *last <= text.up_to).ok_or_else(|| {
                NotKept("an event is open beyond where events were touched".to_owned())
            })?;
            open.insert(last, note);
        }
        Ok(Self { up_to: text.up_to, open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let due = |why| Note { attempts: 2, due: Some((1_700_000_000_000, why)) };
        let mut kept = Kept { up_to: 99, open: BTreeMap::new() };
        assert_eq!(Kept::of_text(&kept.to_text()), Ok(kept.clone()));
        kept.open = BTreeMap::from([(3, Note::default()), (4, Note { attempts: 7, due: None })]);
        for (reason, position) in REASONS.into_iter().zip(90..) {
            kept.open.insert(position, due(reason));
        }
        assert_eq!(Kept::of_text(&kept.to_text()), Ok(kept));
    }

    #[test]
    fn a_text_is_as_it_was() {
        let due = Note { attempts: 1, due: Some((1_000, Reason::BreakerOpen)) };
        let open =
            BTreeMap::from([(3, Note::default()), (5, Note { attempts: 7, due: None }), (9, due)]);
        let text = r#"{"version":1,"upTo":12,"open":[3,[2,7],[4,1,1000,3]]}"#;
        assert_eq!(Kept { up_to: 12, open: open.clone() }.to_text(), text);
        assert_eq!(Kept::of_text(text), Ok(Kept { up_to: 12, open }));
    }

    #[test]
    fn what_is_not_understood_is_not_guessed() {
        let texts = [
            "",
            "12",
            r#"{"version":2,"upTo":12,"open":[]}"#,
            r#"{"version":1,"upTo":12,"open":[13]}"#,
            r#"{"version":1,"upTo":12,"open":[-1]}"#,
            r#"{"version":1,"upTo":12,"open":[],"more":1}"#,
        ];
        for text in texts {
            let error = Kept::of_text(text).unwrap_err().to_string();
            assert!(error.contains("not understood"), "{text}: {error}");
        }
    }
}
