//! What events are asked for.

use std::fmt;

use crate::Event;

/// Which events: those that at least one of its items has. Without items, all of them.
///
/// ```
/// use sluicegate_event_store::Query;
///
/// // All that was said of a course's seats, and all of one student.
/// let query = Query::types(["CourseDefined", "CapacityChanged"]).tag("course", "c1")
///     .or(Query::tagged("student", "s7"));
/// assert_eq!(query.items().len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    items: Vec<QueryItem>,
}

/// Events of one of its types, if it names any, that have all of its tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryItem {
    types: Vec<String>,
    tags: Vec<String>,
}

impl Query {
    /// All events.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Events that one of the items has; all of them if there is no item.
    #[must_use]
    pub fn any_of(items: impl IntoIterator<Item = QueryItem>) -> Self {
        Self { items: items.into_iter().collect() }
    }

    /// Events of one of these types.
    #[must_use]
    pub fn types(types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::any_of([QueryItem::default().types(types)])
    }

    /// Events with the tag `key:value`.
    #[must_use]
    pub fn tagged(key: impl fmt::Display, value: impl fmt::Display) -> Self {
        Self::any_of([QueryItem::default().tag(key, value)])
    }

    /// And with this tag too: every item asks for it.
    #[must_use]
    pub fn tag(mut self, key: impl fmt::Display, value: impl fmt::Display) -> Self {
        let tag = format!("{key}:{value}");
        if self.items.is_empty() {
            self.items.push(QueryItem::default());
        }
        self.items.iter_mut().for_each(|item| item.tags.push(tag.clone()));
        self
    }

    /// What the one or the other asks for.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        if self.is_all() || other.is_all() {
            return Self::all();
        }
        self.items.extend(other.items);
        self
    }

    /// Its items.
    #[must_use]
    pub fn items(&self) -> &[QueryItem] {
        &self.items
    }

    /// Whether it asks for all events.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.items.iter().any(QueryItem::is_all) || self.items.is_empty()
    }

    /// Whether it asks for this event.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        let has = |tag: &str| event.tags().any(|of_event| of_event == tag);
        self.items.is_empty() || self.items.iter().any(|item| item.matches(event.event_type(), has))
    }

    pub(crate) fn items_mut(&mut self) -> &mut Vec<QueryItem> {
        &mut self.items
    }
}

impl QueryItem {
    /// Of one of these types.
    #[must_use]
    pub fn types(mut self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.types.extend(types.into_iter().map(Into::into));
        self
    }

    /// With the tag `key:value` too.
    #[must_use]
    pub fn tag(mut self, key: impl fmt::Display, value: impl fmt::Display) -> Self {
        self.tags.push(format!("{key}:{value}"));
        self
    }

    /// With tags that are written `key:value`.
    #[must_use]
    pub fn tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// The types that it names; none means every type.
    #[must_use]
    pub fn event_types(&self) -> &[String] {
        &self.types
    }

    /// The tags that an event must have.
    #[must_use]
    pub fn all_tags(&self) -> &[String] {
        &self.tags
    }

    /// Whether it asks for all events.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.types.is_empty() && self.tags.is_empty()
    }

    /// Whether it asks for an event of this type that has the tags that `has` knows.
    pub fn matches(&self, event_type: &str, has: impl Fn(&str) -> bool) -> bool {
        (self.types.is_empty() || self.types.iter().any(|of| of == event_type))
            && self.tags.iter().all(|tag| has(tag))
    }

    pub(crate) fn sort(&mut self) {
        for names in [&mut self.types, &mut self.tags] {
            names.sort_unstable();
            names.dedup();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;

    #[test]
    fn items_are_or_types_are_or_tags_are_and() {
        let event = Event::new(Position::new(1), 0, "B", ["k:v", "l:w"], "{}");
        let cases = [
            (Query::all(), true),
            (Query::types(["A", "B"]), true),
            (Query::types(["A"]), false),
            (Query::tagged("k", "v"), true),
            (Query::tagged("k", "v").tag("l", "w"), true),
            (Query::tagged("k", "v").tag("l", "x"), false),
            (Query::types(["A"]).or(Query::tagged("l", "w")), true),
            (Query::types(["A"]).tag("k", "v").or(Query::types(["B"]).tag("k", "x")), false),
            (Query::types(["A"]).or(Query::all()), true),
            (Query::any_of([QueryItem::default()]), true),
        ];
        for (query, matches) in cases {
            assert_eq!(query.matches(&event), matches, "{query:?}");
        }
    }
}
