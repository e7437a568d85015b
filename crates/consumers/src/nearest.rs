//! The name that may have been meant.

/// The nearest of the known names, if it is near enough to be a slip. Of two that are as near, the
/// first in the alphabet.
pub(crate) fn of<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).clamp(1, 3);
    let near = known.into_iter().map(|known| (distance(name, known), known));
    near.filter(|(distance, _)| *distance <= limit).min().map(|(_, known)| known)
}

/// How many characters must be added, taken away or changed to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (at, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["orders", "orders.dead", "payments"];
        let cases = [
            ("oders", Some("orders")),
            ("ordersx", Some("orders")),
            ("payment", Some("payments")),
            ("order.dead", Some("orders.dead")),
            ("invoices", None),
            ("", None),
        ];
        for (name, nearest) in cases {
            assert_eq!(super::of(name, known), nearest, "{name}");
        }
    }
}
