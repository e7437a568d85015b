//! The known name that an unknown one was probably meant to be.

/// Longer names are no misspellings, and comparing them costs their product.
const LONGEST: usize = 64;

/// The nearest of `known` to `name`, if it is near enough to be meant.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > LONGEST {
        return None;
    }
    let wanted = name.to_lowercase().replace('-', "_");
    let distances = known.iter().map(|known| {
        let near = distance(&wanted, &known.to_lowercase().replace('-', "_"));
        (near, *known)
    });
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    let longer = name.chars().count().max(nearest.chars().count());
    // With no letter in common any name is as near as any other.
    if distance < longer && distance <= longer.div_ceil(3).min(3) {
        return Some(nearest);
    }
    let begun = |known: &&&str| wanted.len() > 3 && known.starts_with(&wanted);
    known.iter().find(begun).copied()
}

/// How many letters must be put in, left out, replaced or swapped with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
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
    use super::{distance, nearest};

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
            assert_eq!(distance(from, to), edits, "{from} {to}");
        }
    }

    #[test]
    fn only_a_near_name_is_offered() {
        let known = ["listen", "token", "read_token", "drain"];
        let long = "listen".repeat(20);
        let cases = [
            ("lisen", Some("listen")),
            ("LISTEN", Some("listen")),
            ("read-token", Some("read_token")),
            ("readtoken", Some("read_token")),
            ("tokens", Some("token")),
            ("read", Some("read_token")),
            ("rea", None),
            ("colour", None),
            ("x", None),
            (&long, None),
        ];
        for (name, offered) in cases {
            assert_eq!(nearest(name, &known), offered, "{name}");
        }
        assert_eq!(nearest("listen", &[]), None);
        assert_eq!(nearest("1", &["2", "1.1"]), None);
    }
}
