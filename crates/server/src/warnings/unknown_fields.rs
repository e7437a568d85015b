//! How many unknown fields of a queue are told apart: whoever writes messages chooses their names.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

/// What all further fields of a queue are called.
const OTHERS: &str = "…";

/// The unknown fields that were named so far, by queue.
#[derive(Debug, Default)]
pub(crate) struct UnknownFields {
    named: Mutex<HashMap<Arc<str>, BTreeSet<Box<str>>>>,
}

impl UnknownFields {
    /// How many of a queue have a warning of their own.
    const MOST: usize = 32;

    /// The name to warn of: the field's own, as long as there are not too many.
    pub(crate) fn name<'a>(&self, queue: &Arc<str>, field: &'a str) -> &'a str {
        let mut named = self.named.lock();
        let fields = named.entry(Arc::clone(queue)).or_default();
        if fields.contains(field) {
            return field;
        }
        if fields.len() == Self::MOST {
            return OTHERS;
        }
        fields.insert(field.into());
        field
    }
}
