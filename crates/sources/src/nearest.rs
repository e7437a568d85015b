//! The known name that an unknown one was probably meant to be.

/// Longer names are no misspellings, and comparing them costs their product. Brokers allow 255.
const LONGEST: usize = 255;
/// So many slips are one name; more make another.
const MOST_SLIPS: usize = 3;

/// The nearest of the known names, if it is near enough to be meant: a slip in every three letters,
/// three at most, or the beginning of a name. Capitals, `-` and `_` make no difference. Of two that
/// are as near it is the one that comes first.
///
/// ```
/// use sluicegate_sources::nearest;
///
/// let known = ["orders", "payments"];
/// assert_eq!(nearest("odrers", known), Some("orders"));
/// assert_eq!(nearest("Payment", known), Some("payments"));
/// assert_eq!(nearest("invoices", known), None);
/// ```
#[must_use]
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > LONGEST {
        return None;
    }
    let wanted = plain(name);
    let rank = |known: &'k str| {
        let plain = plain(known);
        let longer = wanted.len().max(plain.len());
        // Each letter more is a slip: those that differ by many need no comparison.
        let distance = match longer - wanted.len().min(plain.len()) {
            0..=MOST_SLIPS => distance(&wanted, &plain),
            more => more,
        };
        // With no letter in common any name is as near as any other.
        let is_slip = distance < longer && distance <= longer.div_ceil(3).min(MOST_SLIPS);
        let is_begun = wanted.len() > 3 && plain.starts_with(&wanted);
        (is_slip || is_begun).then_some(((!is_slip, distance), known))
    };
    let near = known.into_iter().filter_map(rank).min_by_key(|(rank, _)| *rank);
    near.map(|(_, known)| known)
}

fn plain(name: &str) -> Vec<char> {
    name.to_lowercase().replace('-', "_").chars().collect()
}

/// How many letters must be put in, left out, replaced or swapped with their neighbour.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before = vec![0; to.len() + 1];
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i; to.len() + 1];
        for j in 1..=to.len() {
            let replaced = above[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
            if swapped {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[to.len()]
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, distance, nearest, plain};

    #[test]
    fn a_distance_counts_edits() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("listen", "listen", 0),
            ("lisetn", "listen", 1),
            ("lissten", "listen", 1),
            ("liste", "listen", 1),
            ("lasten", "listen", 1),
            ("kitten", "sitting", 3),
        ];
        for (from, to, edits) in cases {
            assert_eq!(distance(&plain(from), &plain(to)), edits, "{from} {to}");
        }
    }

    #[test]
    fn only_a_near_name_is_offered() {
        let (most, more) = ("x".repeat(LONGEST), "x".repeat(LONGEST + 1));
        let known = ["token", "listen", "read_token", "drain", "orders", "orders.dead", &most];
        let long = "listen".repeat(20);
        let cases = [
            ("lisen", Some("listen")),
            ("LISTEN", Some("listen")),
            ("read-token", Some("read_token")),
            ("readtoken", Some("read_token")),
            ("tokens", Some("token")),
            ("read", Some("read_token")),
            ("READ-T", Some("read_token")),
            ("rea", None),
            ("oders", Some("orders")),
            ("ordersx", Some("orders")),
            ("order.dead", Some("orders.dead")),
            ("colour", None),
            ("x", None),
            ("", None),
            (&long, None),
            (&most, Some(&most)),
            (&more, None),
        ];
        for (name, offered) in cases {
            assert_eq!(nearest(name, known), offered, "{name}");
        }
        assert_eq!(nearest("listen", []), None);
        assert_eq!(nearest("1", ["2", "1.1"]), None);
    }

    #[test]
    fn of_several_the_nearest_is_offered_and_else_the_first() {
        let cases = [
            ("20x", ["2xx", "200"], ["2xx", "200"]),
            // A slip is nearer than the rest of a word.
            ("lists", ["listseparator", "lost"], ["lost", "lost"]),
            ("rate", ["rate_limit", "rate_per_second"], ["rate_limit", "rate_limit"]),
        ];
        for (name, [one, other], offered) in cases {
            let both = [[one, other], [other, one]].map(|known| nearest(name, known));
            assert_eq!(both, offered.map(Some), "{name}");
        }
    }
}
